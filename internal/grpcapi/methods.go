package grpcapi

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
)

// A Right is what a method needs: one of the verbs, on entities of a kind. The catalog
// enforces it, by typed calls; this table is what documentation and tests compare it
// with. A method without a row is not served.
type Right struct {
	Verbs []access.Verb
	Kind  tko.Kind // "": it depends on the request, or the verb has none
}

// Rights returns the table of all methods, by their full names.
func Rights() map[string]Right {
	right := func(kind tko.Kind, verbs ...access.Verb) Right { return Right{verbs, kind} }
	const (
		t = tko.KindTemplate
		s = tko.KindSite
		d = tko.KindDeployment
		p = tko.KindPlugin
		r = tko.KindRollout
	)
	return map[string]Right{
		tkopb.Data_About_FullMethodName:  right("", access.Open),
		tkopb.Data_WhoAmI_FullMethodName: right("", access.Open),

		tkopb.Data_RegisterTemplate_FullMethodName: right(t, access.Create, access.Update),
		tkopb.Data_DeleteTemplate_FullMethodName:   right(t, access.Delete),
		tkopb.Data_GetTemplate_FullMethodName:      right(t, access.Read),
		tkopb.Data_ListTemplates_FullMethodName:    right(t, access.Read),
		tkopb.Data_PurgeTemplates_FullMethodName:   right(t, access.Purge),

		tkopb.Data_RegisterSite_FullMethodName: right(s, access.Create, access.Update),
		tkopb.Data_DeleteSite_FullMethodName:   right(s, access.Delete),
		tkopb.Data_GetSite_FullMethodName:      right(s, access.Read),
		tkopb.Data_ListSites_FullMethodName:    right(s, access.Read),
		tkopb.Data_PurgeSites_FullMethodName:   right(s, access.Purge),

		tkopb.Data_CreateDeployment_FullMethodName:             right(d, access.Create),
		tkopb.Data_DeleteDeployment_FullMethodName:             right(d, access.Delete),
		tkopb.Data_GetDeployment_FullMethodName:                right(d, access.Read),
		tkopb.Data_ListDeployments_FullMethodName:              right(d, access.Read),
		tkopb.Data_PurgeDeployments_FullMethodName:             right(d, access.Purge),
		tkopb.Data_StartDeploymentModification_FullMethodName:  right(d, access.Update, access.Commit),
		tkopb.Data_EndDeploymentModification_FullMethodName:    right(d, access.Update, access.Commit),
		tkopb.Data_CancelDeploymentModification_FullMethodName: right(d, access.Update, access.Commit),

		tkopb.Data_RegisterPlugin_FullMethodName: right(p, access.Register),
		tkopb.Data_DeletePlugin_FullMethodName:   right(p, access.Register),
		tkopb.Data_GetPlugin_FullMethodName:      right(p, access.Read),
		tkopb.Data_ListPlugins_FullMethodName:    right(p, access.Read),
		tkopb.Data_PurgePlugins_FullMethodName:   right(p, access.Register),

		tkopb.Data_ApproveDeployments_FullMethodName: right(d, access.Approve),
		tkopb.Data_CommitDeployment_FullMethodName:   right(d, access.Commit, access.Update),
		tkopb.Data_CommitDeployments_FullMethodName:  right(d, access.Commit, access.Update),
		tkopb.Data_GetDeployments_FullMethodName:     right(d, access.Read),
		tkopb.Data_ListModifications_FullMethodName:  right(d, access.Read),
		tkopb.Data_BreakModification_FullMethodName:  right("", access.Inspect),
		tkopb.Data_CreateChildren_FullMethodName:     right(d, access.Create),
		tkopb.Data_ProvisionSite_FullMethodName:      right(s, access.Provision, access.Create),
		tkopb.Data_SetConditions_FullMethodName:      right("", access.Condition),
		tkopb.Data_ClaimWork_FullMethodName:          right("", access.Prepare, access.Schedule, access.Source, access.Events),
		tkopb.Data_RenewWork_FullMethodName:          right("", access.Prepare, access.Schedule, access.Source, access.Events),
		tkopb.Data_FinishWork_FullMethodName:         right("", access.Prepare, access.Schedule, access.Source, access.Events),
		tkopb.Data_WatchChanges_FullMethodName:       right("", access.Read),
		tkopb.Data_PutEntity_FullMethodName:          right("", access.Create, access.Update, access.Register),
		tkopb.Data_RemoveEntity_FullMethodName:       right("", access.Delete, access.Register),
		tkopb.Data_CallSites_FullMethodName:          right(s, access.Call),
		tkopb.Data_CallSources_FullMethodName:        right(s, access.Call),
		tkopb.Data_GetSource_FullMethodName:          right("", access.Inspect),
		tkopb.Data_ListSources_FullMethodName:        right("", access.Inspect),
		tkopb.Data_SaveSource_FullMethodName:         right("", access.Source),
		tkopb.Data_ForgetSource_FullMethodName:       right("", access.Source),
		tkopb.Data_GetTargetState_FullMethodName:     right("", access.Schedule),
		tkopb.Data_SaveTargetState_FullMethodName:    right("", access.Schedule),

		tkopb.Rollouts_RegisterRollout_FullMethodName:    right(r, access.Create, access.Update),
		tkopb.Rollouts_DeleteRollout_FullMethodName:      right(r, access.Delete),
		tkopb.Rollouts_GetRollout_FullMethodName:         right(r, access.Read),
		tkopb.Rollouts_ListRollouts_FullMethodName:       right(r, access.Read),
		tkopb.Rollouts_CommandRollout_FullMethodName:     right(r, access.Update, access.Approve), // approve: Approve
		tkopb.Rollouts_GetRolloutStatus_FullMethodName:   right(r, access.Read),
		tkopb.Rollouts_GetRolloutPlan_FullMethodName:     right(r, access.Read),
		tkopb.Rollouts_ListRolloutRows_FullMethodName:    right(r, access.Read),
		tkopb.Rollouts_AdvanceRollout_FullMethodName:     right("", access.Advance),
		tkopb.Rollouts_ProposeRollout_FullMethodName:     right("", access.Prepare),
		tkopb.Rollouts_GetReservedOrigins_FullMethodName: right("", access.Prepare),
		tkopb.Rollouts_GetSiteHold_FullMethodName:        right("", access.Schedule),

		tkopb.Why_Blame_FullMethodName:             right("", access.Read), // of the entity
		tkopb.Why_ExplainSite_FullMethodName:       right(s, access.Read),
		tkopb.Why_GetTemplateImpact_FullMethodName: right(t, access.Read),
		tkopb.Why_CompareSite_FullMethodName:       right(s, access.Read),

		tkopb.Past_ListHistory_FullMethodName:  right(s, access.Read), // of the kind that is selected
		tkopb.Past_DiffPast_FullMethodName:     right(s, access.Read),
		tkopb.Past_RestorePast_FullMethodName:  right(s, access.Update),
		tkopb.Past_GetRetention_FullMethodName: right(d, access.Read),

		tkopb.Access_CanI_FullMethodName:                 right("", access.Open),
		tkopb.Access_ListBindings_FullMethodName:         right("", access.Open), // one's own
		tkopb.Access_Bind_FullMethodName:                 right("", access.Bind),
		tkopb.Access_Unbind_FullMethodName:               right("", access.Bind),
		tkopb.Access_ListPolicies_FullMethodName:         right("", access.Open),
		tkopb.Access_AddPolicy_FullMethodName:            right("", access.Bind),
		tkopb.Access_BreakGlass_FullMethodName:           right("", access.Open), // by the socket and the user
		tkopb.Access_GetOwner_FullMethodName:             right("", access.Read), // of the entity; of a source, Inspect
		tkopb.Access_CountOwned_FullMethodName:           right("", access.Bind),
		tkopb.Access_SetOwner_FullMethodName:             right("", access.Own),
		tkopb.Access_Freeze_FullMethodName:               right(tko.KindSite, access.Call),
		tkopb.Access_Unfreeze_FullMethodName:             right(tko.KindSite, access.Call),
		tkopb.Access_ListFreezes_FullMethodName:          right(tko.KindSite, access.Read),
		tkopb.Access_Stop_FullMethodName:                 right(tko.KindSite, access.Call),
		tkopb.Access_Resume_FullMethodName:               right(tko.KindSite, access.Call),
		tkopb.Access_ListStops_FullMethodName:            right(tko.KindSite, access.Read),
		tkopb.Access_GetSiteStop_FullMethodName:          right("", access.Schedule, access.Source),
		tkopb.Access_RegisterSources_FullMethodName:      right("", access.Define),
		tkopb.Access_GetSourceDefinitions_FullMethodName: right("", access.Inspect),
		tkopb.Access_DeleteSource_FullMethodName:         right("", access.Define),
		tkopb.Access_DeclareSources_FullMethodName:       right("", access.Source),
		tkopb.Access_ListCredentials_FullMethodName:      right("", access.Inspect),
		tkopb.Access_ListAudit_FullMethodName:            right("", access.Audit),
		tkopb.Access_VerifyAudit_FullMethodName:          right("", access.Audit),

		tkopb.Admin_Backup_FullMethodName:       right("", access.Backup),
		tkopb.Admin_ListHolds_FullMethodName:    right("", access.Backup),
		tkopb.Admin_ReleaseHolds_FullMethodName: right("", access.Backup),
		tkopb.Logs_GetLogLevels_FullMethodName:  right("", access.Logs),
		tkopb.Logs_SetLogLevels_FullMethodName:  right("", access.Logs),
	}
}

// withRights returns a description of a service without the methods that have no row
// in the table: they are not served.
func withRights(desc grpc.ServiceDesc) grpc.ServiceDesc {
	table := Rights()
	unlisted := func(name string) bool {
		_, ok := table["/"+desc.ServiceName+"/"+name]
		return !ok
	}
	desc.Methods = slices.DeleteFunc(slices.Clone(desc.Methods), func(m grpc.MethodDesc) bool { return unlisted(m.MethodName) })
	desc.Streams = slices.DeleteFunc(slices.Clone(desc.Streams), func(m grpc.StreamDesc) bool { return unlisted(m.StreamName) })
	return desc
}
