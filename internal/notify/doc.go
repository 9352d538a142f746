// Package notify sends messages about what happens to destinations outside of TKO, as
// subscriptions declare it. It reads the spec of a subscription, selects what it tells,
// groups that into one message, renders templates, and sends it to a webhook, Slack, a mail
// server, Alertmanager, or a receiver of CloudEvents.
//
// Each message has a number, which is saved before the message is sent for the first time,
// and the position up to which it tells; the cursor moves only after the destination has
// accepted it. So a message is sent at least once, and its ID is the same each time.
//
// Start reading at [Notifier.Run].
package notify
