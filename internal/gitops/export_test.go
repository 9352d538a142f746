package gitops

// KindFields are the fields of the settings that each kind of definitions has.
var KindFields = kindFields

// FirstWith is firstWith.
var FirstWith = firstWith
