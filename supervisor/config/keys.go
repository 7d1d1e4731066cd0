package config

import (
	"postern/near"
	"postern/supervisor/order"
)

// Bounds of postern.yaml.
const (
	MaxFile     = 1 << 20 // bytes of one file
	MaxFiles    = 64      // drop-ins
	maxHosts    = 1024
	maxIDs      = 10_000 // of one list of a host
	maxText     = 64     // bytes of one text
	maxMistakes = 200    // that are told of one file

	maxUint32 = 1<<32 - 1

	maxKeepDays = 36_500
	minKeepMiB  = 64 // less would remove records that a folded denial still counts on
	maxKeepMiB  = 16 << 20

	minAuditKiB, maxAuditKiB   = 64, 1 << 20
	minAuditFiles, maxAuditOld = 1, 99

	// Of sessions. The greatest are what a bridge takes where nothing is said.
	maxRequests              = 64
	minLineKiB, maxLineKiB   = 4, 16 << 10
	maxLineWait              = 3600 // seconds
	minDepth, maxDepth       = 8, 512
	minQueueKiB, maxQueueKiB = 64, 20 << 10
	maxDrainSeconds          = 3600

	minArtifactMiB = 8 // one artifact
)

// Type is what a key's value has to be.
type Type string

// The types.
const (
	Section  Type = "section"      // of keys
	Sections Type = "list"         // of sections
	Number   Type = "number"       // from Least to Most
	Text     Type = "text"         // of 1 to 64 bytes
	Accounts Type = "account ids"  // a list, or "*" alone
	Projects Type = "project ids"  // a list, or "*" alone
	Names    Type = "list of text" // where "*" is none
)

// Key is one key of postern.yaml. The table of them is what is checked, and what the
// page, the schema and the manual are written from.
type Key struct {
	Path        string // hosts[].uid
	Type        Type
	Least, Most uint32
	Default     string // in words, of a key that need not be there
	Needed      bool   // where its section is there
	Restart     bool   // a running posternd does not take it
	Text        string // a sentence
	Example     string

	// to is where the value goes, which lies in the file or in its last host.
	to func(*File) any
}

func lastHost(f *File) *order.Host { return &f.Hosts[len(f.Hosts)-1] }

// Keys are all keys, in the order of the page.
func Keys() []Key { return keys }

var keys = []Key{
	{Path: "uid_range", Type: Section, Restart: true, Default: "as below",
		Text: "The uids, and equal gids, that jails lease one at a time. They are nobody else's, and locked for the whole machine."},
	{Path: "uid_range.first", Type: Number, Least: 65536, Most: 1<<31 - 1, Needed: true, Restart: true, Default: "1879048192", Example: "1879048192",
		Text: "The first of them.",
		to:   func(f *File) any { return &f.UIDs.First }},
	{Path: "uid_range.count", Type: Number, Least: 1, Most: 1<<31 - 65536, Needed: true, Restart: true, Default: "8192", Example: "8192",
		Text: "How many they are: as many jails can be alive at once. The last is below 2147483648.",
		to:   func(f *File) any { return &f.UIDs.Count }},

	{Path: "activity", Type: Section, Default: "for ever",
		Text: "How long records of calls are kept. Whichever bound is met first removes the oldest."},
	{Path: "activity.keep_days", Type: Number, Least: 1, Most: maxKeepDays, Default: "for ever", Example: "365",
		Text: "Days after which a record is removed.",
		to:   func(f *File) any { return &f.Keep.Days }},
	{Path: "activity.keep_mib", Type: Number, Least: minKeepMiB, Most: maxKeepMiB, Default: "without bound", Example: "8192",
		Text: "MiB of activity.db in use, beyond which the oldest records are removed.",
		to:   func(f *File) any { return &f.Keep.MiB }},

	{Path: "artifacts", Type: Section, Default: "as below",
		Text: "How much is kept of what calls brought back. Whichever bound is met first removes the oldest."},
	{Path: "artifacts.keep_days", Type: Number, Least: 1, Most: maxKeepDays, Default: "30", Example: "30",
		Text: "Days after which the bytes are removed.",
		to:   func(f *File) any { return &f.Artifacts.Days }},
	{Path: "artifacts.keep_mib", Type: Number, Least: minArtifactMiB, Most: maxKeepMiB, Default: "4096", Example: "4096",
		Text: "MiB of all projects together.",
		to:   func(f *File) any { return &f.Artifacts.MiB }},
	{Path: "artifacts.project_mib", Type: Number, Least: minArtifactMiB, Most: maxKeepMiB, Default: "1024", Example: "1024",
		Text: "MiB of one project; what is beyond is not kept.",
		to:   func(f *File) any { return &f.Artifacts.ProjectMiB }},

	{Path: "drain_seconds", Type: Number, Least: 0, Most: maxDrainSeconds, Default: "20", Example: "20",
		Text: "What open calls get when posternd is asked to end.",
		to:   func(f *File) any { f.Drain = new(uint32); return f.Drain }},

	{Path: "metrics_uid", Type: Number, Least: 1, Most: 1<<31 - 1, Default: "root alone", Example: "995",
		Text: "The user that postern-metrics runs as, who is told how much the authority does.",
		to:   func(f *File) any { return &f.MetricsUID }},

	{Path: "audit", Type: Section, Default: "as below", Text: "How much is kept of each log of changes."},
	{Path: "audit.file_kib", Type: Number, Least: minAuditKiB, Most: maxAuditKiB, Default: "8192", Example: "8192",
		Text: "KiB at which audit.log becomes audit.log.1.",
		to:   func(f *File) any { return &f.Audit.KiB }},
	{Path: "audit.old_files", Type: Number, Least: minAuditFiles, Most: maxAuditOld, Default: "9", Example: "9",
		Text: "How many older files are kept.",
		to:   func(f *File) any { return &f.Audit.Files }},

	{Path: "sessions", Type: Section, Default: "as below",
		Text: "What a runtime may send and leave unread. It holds for sessions that are bound from then on."},
	{Path: "sessions.requests", Type: Number, Least: 1, Most: maxRequests, Default: "64", Example: "64",
		Text: "Requests in flight.",
		to:   func(f *File) any { return &f.Sessions.Requests }},
	{Path: "sessions.line_kib", Type: Number, Least: minLineKiB, Most: maxLineKiB, Default: "16384", Example: "16384",
		Text: "KiB of one message.",
		to:   func(f *File) any { return &f.Sessions.LineKiB }},
	{Path: "sessions.line_wait_seconds", Type: Number, Least: 1, Most: maxLineWait, Default: "30", Example: "30",
		Text: "How long the rest of a long message may take once it has begun.",
		to:   func(f *File) any { return &f.Sessions.LineWaitSeconds }},
	{Path: "sessions.depth", Type: Number, Least: minDepth, Most: maxDepth, Default: "512", Example: "512",
		Text: "How deep values may be nested.",
		to:   func(f *File) any { return &f.Sessions.Depth }},
	{Path: "sessions.queue_kib", Type: Number, Least: minQueueKiB, Most: maxQueueKiB, Default: "20480", Example: "20480",
		Text: "KiB that wait for the runtime to read them.",
		to:   func(f *File) any { return &f.Sessions.QueueKiB }},

	{Path: "hosts", Type: Sections, Most: maxHosts, Default: "none",
		Text: "Programs that make tasks for others. The lists of all files are one list. A host that loses an account, a project or a channel loses the tasks that it made there, for ever."},
	{Path: "hosts[].id", Type: Text, Needed: true, Example: "agents",
		Text: "Its name, shown in tasks and records; no other host's, in whatever case.",
		to:   func(f *File) any { return &lastHost(f).ID }},
	{Path: "hosts[].uid", Type: Number, Least: 1, Most: maxUint32, Needed: true, Example: "998",
		Text: "The user it runs as: of no account and no other host, not root, not the authority's, not in the range.",
		to:   func(f *File) any { return &lastHost(f).UID }},
	{Path: "hosts[].accounts", Type: Accounts, Most: maxIDs, Needed: true, Example: `["*"]`,
		Text: "For whom it may make tasks: ids of accounts, or \"*\" alone.",
		to:   func(f *File) any { return &lastHost(f).Accounts }},
	{Path: "hosts[].projects", Type: Projects, Most: maxIDs, Needed: true, Example: `["*"]`,
		Text: "In which projects: ids, or \"*\" alone.",
		to:   func(f *File) any { return &lastHost(f).Projects }},
	{Path: "hosts[].channels", Type: Names, Most: maxIDs, Default: "none: its tasks act for their own account", Example: "[whatsapp]",
		Text: "Channels of access.yaml whose principals it may name.",
		to:   func(f *File) any { return &lastHost(f).Channels }},
}

// sections are the keys of each section, for the hints.
var sections = func() near.Sections {
	s := near.Sections{"": nil}
	for _, k := range keys {
		in, name := parent(k.Path)
		s[in] = append(s[in], name)
	}
	return s
}()

var byPath = func() map[string]*Key {
	all := map[string]*Key{}
	for i := range keys {
		all[keys[i].Path] = &keys[i]
	}
	return all
}()
