// Package source keeps what repositories and users declare to the server: GitOps sources and their state,
// which the role gitops reads and writes (Keeper), and subscriptions (SubscriptionKeeper), with what the
// notifier reads as their owners (Told). Both are among the rules of access, so that a change of them and
// of rights is one decision.
package source
