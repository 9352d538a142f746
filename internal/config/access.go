package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// AccessAuto is the value of Access that depends on the addresses.
const AccessAuto = "auto"

// Access holds the settings of rights and of the audit log.
type Access struct {
	Mode       string   // AccessAuto, off, report, enforce
	Anonymous  string   // role, or ""
	Kubernetes string   // role, or ""
	Persons    []string // PERSON=SUBJECT
	// OwnerGroups is how long owners have the groups that they had when they wrote a
	// revision; 0: for ever.
	OwnerGroups time.Duration

	Audit         bool
	AuditKeep     time.Duration
	AuditExport   string // file, syslog:ADDRESS, or ""
	AuditInterval time.Duration
}

func (a *Access) flags(flags *pflag.FlagSet) {
	flags.StringVar(&a.Mode, "access", AccessAuto, "rights of clients: enforce, report (all rights; what enforce would refuse is logged and audited), off (all rights), or auto: enforce if other machines are served without --insecure, else off. The first administrator: tko-server access init")
	flags.StringVar(&a.Anonymous, "access-anonymous", "", "role of clients on this machine without credentials, such as viewer, where rights are enforced; empty for none")
	flags.StringVar(&a.Kubernetes, "access-kubernetes", string(access.Delegated), "role of users of the Kubernetes API, about whose verbs the cluster decides, where rights are enforced; empty for none: then they need bindings (k8s:USER, group k8s:GROUP)")
	flags.StringSliceVar(&a.Persons, "access-persons", nil, "identities of one person, as PERSON=SUBJECT, each on its own: ann=oidc:corp:17,ann=cert:ann. They count as one author and one approver; the same for all servers")
	flags.DurationVar(&a.OwnerGroups, "owner-groups", 0, "time for which the owner of an entity counts as a member of the groups that it had when it wrote it, at least 24h; after that, what controllers derive by these groups is held; 0 for ever")
	flags.BoolVar(&a.Audit, "audit", true, "record each change and each refusal in the audit log, in the transaction of the change")
	flags.DurationVar(&a.AuditKeep, "audit-keep", 17520*time.Hour, "retention time of audit records, at least 24h; 0 for ever")
	flags.StringVar(&a.AuditExport, "audit-export", "", "copy audit records to a file, as JSON lines, or to syslog:HOST:PORT (RFC 5424 over TCP) or syslog+tls:HOST:PORT (RFC 5425, trusting the certificate authorities of this machine), each at least once; empty for none")
	flags.DurationVar(&a.AuditInterval, "audit-interval", 10*time.Second, "interval at which audit records are exported, checkpoints are logged, and old records are removed")
}

// AccessMode returns how rights are enforced, which depends on the addresses for auto.
func (c *Config) AccessMode() string {
	if c.Access.Mode != AccessAuto {
		return c.Access.Mode
	}
	if len(c.Exposed()) > 0 && !c.Identity.Insecure {
		return "enforce"
	}
	return "off"
}

// PersonsBySubject returns the names of persons by subject. Malformed texts, and a subject
// of two persons, are an ErrInvalid.
func (a *Access) PersonsBySubject() (map[string]string, error) {
	persons := map[string]string{}
	for _, text := range a.Persons {
		person, subject, ok := strings.Cut(text, "=")
		if !ok || person == "" || !identity.IsSubject(subject) {
			return nil, tko.Errorf(tko.ErrInvalid, "--access-persons has %q: use PERSON=SUBJECT, with a subject as tko whoami shows it, such as ann=oidc:corp:17", text)
		}
		if other, ok := persons[subject]; ok && other != person {
			return nil, tko.Errorf(tko.ErrInvalid, "--access-persons has the subject %q for %q and for %q: it is of one person", subject, other, person)
		}
		persons[subject] = person
	}
	return persons, nil
}

// checkAccess adds the problems of the settings of rights and audit.
func (c *Config) checkAccess(wrong *problems) {
	a := &c.Access
	roles := access.Roles()
	wrong.word("access", a.Mode, AccessAuto, "off", "report", "enforce")
	if (a.Mode == "off" || a.Mode == "report") && c.Has(RoleData) && len(c.Exposed()) > 0 && !c.Identity.Insecure {
		wrong.add("--access=%s gives every client all rights, and other machines are served (%s): use --access=enforce, or --insecure", a.Mode, strings.Join(c.Exposed(), " "))
	}
	for flag, role := range map[string]string{"access-anonymous": a.Anonymous, "access-kubernetes": a.Kubernetes} {
		if role != "" && !slices.Contains(roles, access.Role(role)) {
			wrong.add("--%s is %q, which is no role", flag, role)
		}
	}
	if a.AuditKeep != 0 && a.AuditKeep < 24*time.Hour {
		wrong.add("--audit-keep is less than 24h: use more, or 0 for ever")
	}
	if a.OwnerGroups != 0 && a.OwnerGroups < 24*time.Hour {
		wrong.add("--owner-groups is less than 24h: use more, or 0 for ever")
	}
	if _, err := a.PersonsBySubject(); err != nil {
		wrong.add("%s", err)
	}
	if a.AuditInterval <= 0 {
		wrong.add("--audit-interval must be more than 0")
	}
	if a.AuditExport != "" && !a.Audit {
		wrong.add("--audit-export needs --audit")
	}
}
