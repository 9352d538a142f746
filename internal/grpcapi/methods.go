package grpcapi

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
)

// A Right is a row of the table of methods: what a method needs, one of the verbs, on entities
// of a kind, and what those who serve and call it must know. The catalog enforces the right, by
// typed calls; documentation and tests compare it with the row. The server, the Go client and
// docs/methods.md follow the rest. A method without a row is not served.
type Right struct {
	Verbs []access.Verb
	Kind  tko.Kind // "": it depends on the request, or the verb has none

	// Again reports that a client that lost the response may call again: the outcome is the
	// same, or a second call does no harm. A stream begins again only before its first message.
	Again bool
	// Large reports that requests hold packages, errors or states of controllers: they may be
	// as large as the server accepts any message. Others have 8 MiB.
	Large bool
	Parts int // maximum number of messages in a request; 0 for the default
	// Lasting reports that a call without a deadline ends when it is complete, and not after
	// the server's timeout.
	Lasting bool
	Light   bool   // of methods that read: one entity, or none
	NoTurn  string // why a method that reads takes no turn; "" if it takes one
	// Plain is the method of the catalog that a method calls and nothing else: its handler and
	// its method of the Go client are generated. "" if they are written by hand.
	Plain string
}

func (r Right) again() Right               { r.Again = true; return r }
func (r Right) large() Right               { r.Large = true; return r }
func (r Right) parts(most int) Right       { r.Parts = most; return r }
func (r Right) lasting() Right             { r.Lasting = true; return r }
func (r Right) light() Right               { r.Light = true; return r }
func (r Right) noTurn(reason string) Right { r.NoTurn = reason; return r }

func (r Right) plain(method string) Right { r.Plain = method; return r }

// Rights returns the table of all methods, by their full names.
func Rights() map[string]Right { return maps.Clone(table()) }

var table = sync.OnceValue(func() map[string]Right {
	right := func(kind tko.Kind, verbs ...access.Verb) Right { return Right{Verbs: verbs, Kind: kind} }
	const (
		t = tko.KindTemplate
		s = tko.KindSite
		d = tko.KindDeployment
		p = tko.KindPlugin
		r = tko.KindRollout
	)
	return map[string]Right{
		tkopb.Data_About_FullMethodName:  right("", access.Open).again().light(),
		tkopb.Data_WhoAmI_FullMethodName: right("", access.Open).again().light(),

		tkopb.Data_RegisterTemplate_FullMethodName: right(t, access.Create, access.Update).again().large(),
		tkopb.Data_DeleteTemplate_FullMethodName:   right(t, access.Delete).lasting(),
		tkopb.Data_GetTemplate_FullMethodName:      right(t, access.Read).again().light(),
		tkopb.Data_ListTemplates_FullMethodName:    right(t, access.Read).again(),
		tkopb.Data_PurgeTemplates_FullMethodName:   right(t, access.Purge).lasting(),

		tkopb.Data_RegisterSite_FullMethodName: right(s, access.Create, access.Update).again().large(),
		tkopb.Data_DeleteSite_FullMethodName:   right(s, access.Delete).lasting(),
		tkopb.Data_GetSite_FullMethodName:      right(s, access.Read).again().light(),
		tkopb.Data_ListSites_FullMethodName:    right(s, access.Read).again(),
		tkopb.Data_PurgeSites_FullMethodName:   right(s, access.Purge).lasting(),

		tkopb.Data_CreateDeployment_FullMethodName:             right(d, access.Create).large(),
		tkopb.Data_DeleteDeployment_FullMethodName:             right(d, access.Delete).lasting(),
		tkopb.Data_GetDeployment_FullMethodName:                right(d, access.Read).again().light(),
		tkopb.Data_ListDeployments_FullMethodName:              right(d, access.Read).again(),
		tkopb.Data_PurgeDeployments_FullMethodName:             right(d, access.Purge).lasting(),
		tkopb.Data_StartDeploymentModification_FullMethodName:  right(d, access.Update, access.Commit),
		tkopb.Data_EndDeploymentModification_FullMethodName:    right(d, access.Update, access.Commit).large(),
		tkopb.Data_CancelDeploymentModification_FullMethodName: right(d, access.Update, access.Commit),

		tkopb.Data_RegisterPlugin_FullMethodName: right(p, access.Register).again(),
		tkopb.Data_DeletePlugin_FullMethodName:   right(p, access.Register),
		tkopb.Data_GetPlugin_FullMethodName:      right(p, access.Read).again().light(),
		tkopb.Data_ListPlugins_FullMethodName:    right(p, access.Read).again(),
		tkopb.Data_PurgePlugins_FullMethodName:   right(p, access.Register).lasting(),

		tkopb.Data_ApproveDeployments_FullMethodName: right(d, access.Approve).lasting(),
		tkopb.Data_CommitDeployment_FullMethodName:   right(d, access.Commit, access.Update).large(),
		tkopb.Data_CommitDeployments_FullMethodName:  right(d, access.Commit, access.Update).large(),
		tkopb.Data_GetDeployments_FullMethodName:     right(d, access.Read).again(),
		tkopb.Data_ListModifications_FullMethodName:  right(d, access.Read).again().plain("Modifications"),
		tkopb.Data_BreakModification_FullMethodName:  right("", access.Inspect).noTurn("it changes something").plain("BreakModification"),
		tkopb.Data_CreateChildren_FullMethodName:     right(d, access.Create).again().large(),
		tkopb.Data_ProvisionSite_FullMethodName:      right(s, access.Provision, access.Create).again().large(),
		tkopb.Data_ResolveSite_FullMethodName:        right("", access.Prepare).again(),
		tkopb.Data_SetConditions_FullMethodName:      right("", access.Condition).again(),
		tkopb.Data_ClaimWork_FullMethodName:          right("", access.Prepare, access.Schedule, access.Source, access.Events).again(),
		tkopb.Data_RenewWork_FullMethodName:          right("", access.Prepare, access.Schedule, access.Source, access.Events).again().large(),
		tkopb.Data_FinishWork_FullMethodName:         right("", access.Prepare, access.Schedule, access.Source, access.Events).again().large(),
		tkopb.Data_WatchChanges_FullMethodName:       right("", access.Read).noTurn("it waits for changes"),
		tkopb.Data_ListMarks_FullMethodName:          right("", access.Read).again().plain("Marks"), // of the kind in the request
		tkopb.Data_GetFleet_FullMethodName:           right(d, access.Read).again().lasting().plain("Fleet"),
		tkopb.Data_PutEntity_FullMethodName:          right("", access.Create, access.Update, access.Register).again().large(),
		tkopb.Data_RemoveEntity_FullMethodName:       right("", access.Delete, access.Register),
		tkopb.Data_CallSites_FullMethodName:          right(s, access.Call).again(),
		tkopb.Data_CallSources_FullMethodName:        right(s, access.Call).again(),
		tkopb.Data_GetSource_FullMethodName:          right("", access.Inspect).again(),
		tkopb.Data_ListSources_FullMethodName:        right("", access.Inspect).again(),
		tkopb.Data_SaveSource_FullMethodName:         right("", access.Source).again().large().parts(maxSourceParts),
		tkopb.Data_ForgetSource_FullMethodName:       right("", access.Source).again(),
		tkopb.Data_GetTargetState_FullMethodName:     right("", access.Schedule).again(),
		tkopb.Data_SaveTargetState_FullMethodName:    right("", access.Schedule).again().large(),

		tkopb.Rollouts_RegisterRollout_FullMethodName:          right(r, access.Create, access.Update).again(),
		tkopb.Rollouts_DeleteRollout_FullMethodName:            right(r, access.Delete),
		tkopb.Rollouts_GetRollout_FullMethodName:               right(r, access.Read).again().light(),
		tkopb.Rollouts_ListRollouts_FullMethodName:             right(r, access.Read).again(),
		tkopb.Rollouts_CommandRollout_FullMethodName:           right(r, access.Update, access.Approve).again().plain("RolloutDo"), // approve: Approve; in an emergency, Emergency, too
		tkopb.Rollouts_GetRolloutStatus_FullMethodName:         right(r, access.Read).again().plain("RolloutStatus"),
		tkopb.Rollouts_GetRolloutPlan_FullMethodName:           right(r, access.Read).again().plain("RolloutPlan"),
		tkopb.Rollouts_ListRolloutRows_FullMethodName:          right(r, access.Read).again(),
		tkopb.Rollouts_AdvanceRollout_FullMethodName:           right("", access.Advance).again(),
		tkopb.Rollouts_GetRolloutMeasurements_FullMethodName:   right("", access.Advance).again(),
		tkopb.Rollouts_ReportRolloutMeasurement_FullMethodName: right("", access.Advance).again(),
		tkopb.Rollouts_ListRolloutEvidence_FullMethodName:      right(r, access.Read).again(),
		tkopb.Rollouts_GetRolloutTickets_FullMethodName:        right("", access.Advance).again(),
		tkopb.Rollouts_ReportRolloutTicket_FullMethodName:      right("", access.Advance).again(),
		tkopb.Rollouts_ProposeRollout_FullMethodName:           right("", access.Prepare).again(),
		tkopb.Rollouts_GetReservedOrigins_FullMethodName:       right("", access.Prepare).again(),
		tkopb.Rollouts_GetSiteHold_FullMethodName:              right("", access.Schedule).again(),
		tkopb.Rollouts_GetSiteStagings_FullMethodName:          right("", access.Schedule).again(),
		tkopb.Rollouts_ReportSiteStaging_FullMethodName:        right("", access.Schedule).again(),

		tkopb.Why_Blame_FullMethodName:             right("", access.Read).again(), // of the entity
		tkopb.Why_ExplainSite_FullMethodName:       right(s, access.Read).again(),
		tkopb.Why_GetTemplateImpact_FullMethodName: right(t, access.Read).again().large(),
		tkopb.Why_CompareSite_FullMethodName:       right(s, access.Read).again().noTurn("it waits for a meta-scheduler").plain("CompareSite"),
		tkopb.Why_GetPluginRuns_FullMethodName:     right("", access.Read).again().plain("PluginRuns"), // of the entity

		tkopb.Past_ListHistory_FullMethodName:  right(s, access.Read).again(), // of the kind that is selected
		tkopb.Past_DiffPast_FullMethodName:     right(s, access.Read).again(),
		tkopb.Past_RestorePast_FullMethodName:  right(s, access.Update),
		tkopb.Past_GetRetention_FullMethodName: right(d, access.Read).again().plain("Retention"),

		tkopb.Access_CanI_FullMethodName:                  right("", access.Open).again().light(),
		tkopb.Access_ListBindings_FullMethodName:          right("", access.Open).again(), // one's own
		tkopb.Access_Bind_FullMethodName:                  right("", access.Bind),
		tkopb.Access_Unbind_FullMethodName:                right("", access.Bind),
		tkopb.Access_ListPolicies_FullMethodName:          right("", access.Open).again(),
		tkopb.Access_AddPolicy_FullMethodName:             right("", access.Bind),
		tkopb.Access_BreakGlass_FullMethodName:            right("", access.Open).noTurn("it changes something"), // by the socket and the user
		tkopb.Access_GetOwner_FullMethodName:              right("", access.Read).again().light(),                // of the entity; of a source, Inspect
		tkopb.Access_CountOwned_FullMethodName:            right("", access.Bind).again(),
		tkopb.Access_SetOwner_FullMethodName:              right("", access.Own),
		tkopb.Access_Freeze_FullMethodName:                right(tko.KindSite, access.Call),
		tkopb.Access_Unfreeze_FullMethodName:              right(tko.KindSite, access.Call),
		tkopb.Access_ListFreezes_FullMethodName:           right(tko.KindSite, access.Read).again(),
		tkopb.Access_Stop_FullMethodName:                  right(tko.KindSite, access.Call).plain("Stop"),
		tkopb.Access_Resume_FullMethodName:                right(tko.KindSite, access.Call).plain("Resume"),
		tkopb.Access_ListStops_FullMethodName:             right(tko.KindSite, access.Read).again(),
		tkopb.Access_GetSiteStop_FullMethodName:           right("", access.Schedule, access.Source).again(),
		tkopb.Access_EnrollSite_FullMethodName:            right(tko.KindSite, access.Update),
		tkopb.Access_RevokeSite_FullMethodName:            right(tko.KindSite, access.Update),
		tkopb.Access_EnrollSites_FullMethodName:           right(tko.KindSite, access.Update),
		tkopb.Access_ListWaitingAgents_FullMethodName:     right(tko.KindSite, access.Read).again(),
		tkopb.Access_ApproveAgent_FullMethodName:          right(tko.KindSite, access.Update),
		tkopb.Access_RegisterSources_FullMethodName:       right("", access.Define),
		tkopb.Access_GetSourceDefinitions_FullMethodName:  right("", access.Inspect).again(),
		tkopb.Access_DeleteSource_FullMethodName:          right("", access.Define),
		tkopb.Access_DeclareSources_FullMethodName:        right("", access.Source).again(),
		tkopb.Access_RegisterSubscriptions_FullMethodName: right("", access.Subscribe),
		tkopb.Access_ListSubscriptions_FullMethodName:     right("", access.Inspect).again(),
		tkopb.Access_DeleteSubscription_FullMethodName:    right("", access.Subscribe),
		tkopb.Access_TestSubscription_FullMethodName:      right("", access.Subscribe),
		tkopb.Access_RegisterViews_FullMethodName:         right("", access.Publish),
		tkopb.Access_ListViews_FullMethodName:             right("", access.Read).again(), // of any kind
		tkopb.Access_DeleteView_FullMethodName:            right("", access.Publish),
		tkopb.Access_ListCredentials_FullMethodName:       right("", access.Inspect).again(),
		tkopb.Access_ListAudit_FullMethodName:             right("", access.Audit).again(),
		tkopb.Access_VerifyAudit_FullMethodName:           right("", access.Audit).again(),

		tkopb.Admin_Backup_FullMethodName:       right("", access.Backup),
		tkopb.Admin_ListHolds_FullMethodName:    right("", access.Backup).again().plain("Holds"),
		tkopb.Admin_ReleaseHolds_FullMethodName: right("", access.Backup),
		tkopb.Admin_ListQueues_FullMethodName:   right("", access.Inspect).again().plain("Queues"),
		tkopb.Logs_GetLogLevels_FullMethodName:  right("", access.Logs).again(),
		tkopb.Logs_SetLogLevels_FullMethodName:  right("", access.Logs),
	}
})

// withRights returns a description of a service without the methods that have no row
// in the table: they are not served.
func withRights(desc grpc.ServiceDesc) grpc.ServiceDesc {
	unlisted := func(name string) bool {
		_, ok := table()["/"+desc.ServiceName+"/"+name]
		return !ok
	}
	desc.Methods = slices.DeleteFunc(slices.Clone(desc.Methods), func(m grpc.MethodDesc) bool { return unlisted(m.MethodName) })
	desc.Streams = slices.DeleteFunc(slices.Clone(desc.Streams), func(m grpc.StreamDesc) bool { return unlisted(m.StreamName) })
	return desc
}
