package tko

// A CredentialUse is how entities of a kind, or registered sources, use a credential of the
// server.
type CredentialUse struct {
	Credential string // KIND:NAME
	Host       string // SCHEME://HOST[:PORT] that gets it; "" if the credential names it
	Kind       Kind   // site, template, plugin or source
	Example    string // ID of one that uses it
	Count      int    // of those that use it
	Declared   bool   // the operator declared the use
}
