package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
)

// Who may run a command. What they then see is decided by whoever serves it.
const (
	byRoot    = "root"
	byAnyone  = "anyone"
	byPeople  = "anyone; root sees everything, an account what it owns or is a member of"
	byAccount = "the account itself, and root"
	byOwner   = "the project's owner, and root"
	byHosts   = "root, and hosts for the projects, accounts and channels that postern.yaml gives them"
	byRuntime = "the user that the task is for; with a token, or where the project binds its person"
)

const (
	nothing = "nothing"
	forEver = "; it does not come back"
)

// help is what every command says of itself beside its own text.
type help struct {
	who, changes, example string
}

// helps has a row for each command that does something, by its path without "postern".
var helps = map[string]help{
	"doctor": {byAnyone + "; as root it sees more", nothing, "  sudo postern doctor\n  postern doctor --json"},

	"account add":      {byRoot, "a new account", "  sudo postern account add ana\n  sudo postern account add ci --uid 1007 --uid runner"},
	"account list":     {byPeople, nothing, "  sudo postern account list"},
	"account show":     {byAccount, nothing, "  postern account show ana"},
	"account suspend":  {byAccount, "calls of its tasks are refused at once, and its sessions end", "  postern account suspend ana\n  postern account suspend ana --dry-run"},
	"account activate": {byRoot, "what it owns may be used again", "  sudo postern account activate ana"},
	"account delete":   {byRoot, "the account is gone, with its tasks" + forEver, "  sudo postern account delete ana --dry-run\n  sudo postern account delete ana"},

	"project add":           {byRoot, "a new project on a directory", "  sudo postern project add shop --workspace /srv/shop --owner ana"},
	"project list":          {byPeople, nothing, "  postern project list"},
	"project show":          {byPeople, nothing, "  postern project show shop"},
	"project set":           {byRoot, "the named fact of the project; what runs is started anew where it needs to be", "  sudo postern project set shop --person-bind on\n  sudo postern project set shop --open-name .vscode"},
	"project move":          {byRoot, "which directory the project is; its tasks end, grants and records stay", ""},
	"project member add":    {byRoot, "the account may connect to the project", "  sudo postern project member add shop ben"},
	"project member remove": {byOwner + ", and the member itself", "the account's tasks in the project end", "  postern project member remove shop ben"},
	"project delete":        {byOwner, "every grant and task of the project ends, and the project is gone; its directory stays", "  postern project delete shop --dry-run\n  postern project delete shop"},

	"server add":    {byRoot, "a new registration, and a copy of the package; the probe pins its tools", "  sudo postern server add files --profile node --package ./files -- /usr/bin/node /package/index.js /workspace"},
	"server update": {byRoot, "a new revision; calls to the server are refused until their connection accepts it", "  sudo postern server update files --profile node --package ./files -- /usr/bin/node /package/index.js /workspace"},
	"server list":   {byRoot, nothing, "  sudo postern server list"},
	"server show":   {byRoot + "; an account that has a project sees the catalogue", nothing, "  sudo postern server show files"},
	"server probe":  {byRoot, "what the server lists is pinned", ""},
	"server delete": {byRoot, "the registration is gone, and what runs of it ends" + forEver, "  sudo postern server delete files --dry-run\n  sudo postern server delete files"},
	"server diff":   {byRoot, nothing, ""},
	"server gc":     {byRoot, "copies that no revision needs are removed", ""},

	"profile list":  {byAnyone, nothing, "  postern profile list"},
	"profile show":  {byAnyone, nothing, "  postern profile show node\n  postern profile show static --source > mine.yaml"},
	"profile check": {byAnyone, nothing, "  postern profile check mine.yaml"},

	"connection add":     {byRoot, "the project uses the server, with nothing granted yet", "  sudo postern connection add shop files"},
	"connection list":    {byPeople, nothing, "  postern connection list shop"},
	"connection show":    {byPeople, nothing, "  postern connection show shop files"},
	"connection grant":   {byRoot, "the named tools, prompts and resources may be called", "  sudo postern connection grant shop files read_file list_directory\n  sudo postern connection grant shop files write_file --tier reversible"},
	"connection revoke":  {byOwner, "calls of them are refused, and open ones cancelled, before the answer comes", "  postern connection revoke shop files write_file\n  postern connection revoke shop files"},
	"connection accept":  {byRoot, "the connection uses the server's current revision", ""},
	"connection enable":  {byRoot, "calls are decided by the grants again", "  sudo postern connection enable shop files"},
	"connection disable": {byOwner, "every call is refused, and open ones are cancelled; grants stay", "  postern connection disable shop files"},

	"credential add":    {byRoot, "the project's jails of the server are handed the secret", ""},
	"credential list":   {byRoot, nothing, "  sudo postern credential list"},
	"credential rotate": {byRoot, "the next start is handed the new secret; what was handed the former one has ended", ""},
	"credential revoke": {byRoot, "the secret is removed, and what was handed it has ended" + forEver, ""},

	"task new":    {byHosts, "a new task, and a token for it", "  postern task new --project shop --for-uid ana --token-file\n  postern task new --project shop --for-uid ana --principal whatsapp:+5511999998888 --mode search --token-fd 3 3>token"},
	"task token":  {byHosts, "the task has a fresh token, and its sessions have ended", "  postern task token tsk_019c8a54-5400-7000-8000-000000000001 --token-file"},
	"task list":   {byPeople + ", a host its own", nothing, "  postern task list --project shop"},
	"task show":   {byPeople + ", a host its own", nothing, "  postern task show tsk_019c8a54-5400-7000-8000-000000000001"},
	"task revoke": {byOwner + ", the account that it is of, and the host that made it", "its sessions and calls end" + forEver, "  postern task revoke tsk_019c8a54-5400-7000-8000-000000000001"},

	"access show":    {byRoot, nothing, "  sudo postern access show"},
	"access matrix":  {byRoot, nothing, "  sudo postern access matrix --execution-profile isolated-pod"},
	"access set":     {byRoot, "the line of access.yaml that it names", "  sudo postern access set whatsapp +5511999998888 read --write\n  sudo postern access set whatsapp +5511999998888 --blocked\n  sudo postern access set whatsapp --admission open"},
	"access preset":  {byRoot, "the line of access.yaml that it names", "  sudo postern access preset whatsapp +5511999998888 developer"},
	"access default": {byRoot, "the line of access.yaml that it names", "  sudo postern access default whatsapp chat"},
	"access groups":  {byRoot, "the line of access.yaml that it names", "  sudo postern access groups whatsapp on\n  sudo postern access groups whatsapp default read"},
	"access group":   {byRoot, "the line of access.yaml that it names", "  sudo postern access group whatsapp 120363@g.us read"},
	"access pair":    {byRoot, "a code that can be used once", ""},
	"access redeem":  {byHosts, "whoever wrote the code is paired", ""},
	"access unpair":  {byRoot, "the identity is what access.yaml says of it, or a stranger", ""},

	"explain":      {byPeople + "; a host those of its tasks", nothing, "  postern explain --task tsk_019c8a54-5400-7000-8000-000000000001 files.read_file\n  postern explain --project shop --principal whatsapp:+5511999998888 files.read_file"},
	"capabilities": {byPeople + "; a host those of its tasks", nothing, "  postern capabilities --project shop"},
	"check":        {byPeople + "; a host those of its tasks", nothing, "  postern check --task tsk_019c8a54-5400-7000-8000-000000000001 WebFetch\n  postern check --project shop --hook claude"},

	"connect":       {byRuntime, "a session, for as long as it runs", "  postern connect --project shop --token-file /run/postern/t/tsk_019c8a54-5400-7000-8000-000000000001"},
	"client-config": {byPeople, nothing, "  postern client-config --project shop --for claude"},

	"status":          {byAnyone + "; root sees how much it does", nothing, ""},
	"quota":           {byPeople, nothing, ""},
	"ps":              {byPeople, nothing, "  postern ps\n  postern ps --project shop --json"},
	"top":             {byPeople, nothing, ""},
	"logs":            {"the project's owners and viewers, its members for their own tasks, and root for how servers ended", nothing, ""},
	"activity":        {byPeople + "; a host sees its own tasks", nothing, "  postern activity --project shop --since 10m\n  postern activity --follow --state denied"},
	"activity export": {byPeople + "; a host sees its own tasks", nothing, "  sudo postern activity export --since 24h --out calls.jsonl"},
	"activity show":   {byPeople + "; a host sees its own tasks", nothing, "  postern activity show cal_019c8a54-5400-7000-8000-000000000001"},
	"artifact list":   {"the project's owner and members", nothing, ""},
	"artifact get":    {"the project's owner and members", nothing, ""},

	"drain":    {byRoot, "no new session or call is taken, and at the end none is left; tasks and grants stay", ""},
	"readonly": {byRoot, "whether anything else can be changed", ""},
	"backup":   {byRoot, "nothing but DIR, which must not be there yet", "  sudo postern backup /srv/backup/monday"},
	"restore":  {byRoot, "the state of the backup is the state of the host; what it was stays beside it", "  sudo postern restore /srv/backup/monday"},

	"debug bundle": {byRoot, "nothing but FILE, which must not be there yet", "  sudo postern debug bundle\n  sudo postern debug bundle -o /root/fault.tar.gz"},

	"version": {byAnyone, nothing, "  postern version --json"},
}

// describe gives every command the rest of its help: who may run it, what it changes, an
// example; and the values of flags and arguments that only have a few.
func (a *app) describe(cmd *cobra.Command, path string) {
	for _, sub := range cmd.Commands() {
		a.describe(sub, strings.TrimSpace(path+" "+sub.Name()))
	}
	h, known := helps[path]
	if !known {
		return
	}
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long += "\n\nWho may: " + h.who + ".\nChanges: " + h.changes + "."
	if cmd.Example == "" {
		cmd.Example = h.example
	}
	a.completions(cmd, path)
}

// Values of flags, whichever command they are of. Those of one command alone have its path
// before them.
func (a *app) flagValues() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"state":                             few(activityStates),
		"tier":                              few(tierNames),
		"server add --tier":                 noFiles,
		"server update --tier":              noFiles,
		"scope":                             few([]string{"project", "task"}),
		"credential":                        few([]string{"none", "required"}),
		"profile":                           a.completeProfiles,
		"preset":                            few(presetNames),
		"admission":                         few([]string{"restricted", "open"}),
		"default-mode":                      ofFlag(a.completeModes),
		"mode":                              ofFlag(a.completeModes),
		"execution-profile":                 few([]string{"standard", "isolated-pod"}),
		"person-bind":                       few([]string{"on", "off"}),
		"role":                              few([]string{"owner", "member", "viewer"}),
		"task":                              ofFlag(a.completeTasks),
		"principal":                         ofFlag(a.completePaired),
		"project":                           ofFlag(a.completeProjects),
		"out":                               files,
		"output":                            files,
		"config":                            files,
		"args-file":                         files,
		"from-file":                         files,
		"token-file":                        files,
		"package":                           directories,
		"workspace":                         directories,
		"libexec":                           directories,
		"state-dir":                         directories,
		"root-dir":                          directories,
		"run-dir":                           directories,
		"profiles-dir":                      directories,
		"at":                                noFiles,
		"for-uid":                           noFiles,
		"uid":                               noFiles,
		"class":                             noFiles,
		"from":                              noFiles,
		"to":                                noFiles,
		"ttl":                               few([]string{"5m", "1h", "24h"}),
		"timeout":                           few([]string{"0s", "30s", "2m"}),
		"interval":                          few([]string{"1s", "5s"}),
		"since":                             few([]string{"10m", "1h", "24h"}),
		"cursor":                            noFiles,
		"before":                            noFiles,
		"call":                              noFiles,
		"limit":                             noFiles,
		"lines":                             noFiles,
		"binds":                             noFiles,
		"token-fd":                          noFiles,
		"credential-fd":                     noFiles,
		"credential-env":                    noFiles,
		"systemd":                           noFiles,
		"secret-field":                      noFiles,
		"uid-range":                         noFiles,
		"connector":                         noFiles,
		"prompt":                            noFiles,
		"resource-prefix":                   noFiles,
		"open-name":                         noFiles,
		"close-name":                        noFiles,
		"completion bash --no-descriptions": noFiles,
	}
}

// argValues are what the arguments of a command can be, where the command does not say so
// itself.
func (a *app) argValues() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"access set":            a.channelThen(nil, levelNames),
		"access preset":         a.channelThen(nil, presetNames),
		"access default":        a.channelThen(levelNames),
		"access groups":         a.channelThen([]string{"on", "off", "default"}, levelNames),
		"access group":          a.channelThen(nil, levelNames),
		"profile show":          firstOf(a.completeProfiles),
		"profile check":         files,
		"project set":           a.completeSet,
		"project move":          a.completeMove,
		"project member add":    a.completeMembers,
		"project member remove": a.completeMembers,
		"explain":               a.completeToolOfFlags,
		"readonly":              firstOf(few([]string{"on", "off"})),
		"backup":                directories,
		"restore":               directories,
	}
}

// completions registers what is known of the command's flags and arguments. Where nothing
// can be offered, files are not offered either: none is meant.
func (a *app) completions(cmd *cobra.Command, path string) {
	values := a.flagValues()
	for flag, of := range values {
		name := flag
		if at, own, ok := strings.Cut(flag, " --"); ok {
			if name = own; at != path {
				continue
			}
		} else if values[path+" --"+flag] != nil {
			continue
		}
		if f := cmd.Flags().Lookup(name); f == nil || f.Value.Type() == "bool" {
			continue
		}
		if _, set := cmd.GetFlagCompletionFunc(name); !set {
			cmd.RegisterFlagCompletionFunc(name, of)
		}
	}
	switch own := a.argValues()[path]; {
	case own != nil:
		cmd.ValidArgsFunction = own
	case cmd.ValidArgsFunction == nil:
		cmd.ValidArgsFunction = noFiles
	}
}

func few(words []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(slices.Clone(words), cobra.ShellCompDirectiveNoFileComp)
}

var noFiles = cobra.NoFileCompletions

func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// firstOf completes the first argument alone.
func firstOf(of cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return of(cmd, args, typed)
	}
}

// channelThen completes a channel and then the words of each further argument.
func (a *app) channelThen(rest ...[]string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch n := len(args); {
		case n == 0:
			return a.completeChannels(cmd, args, typed)
		case n <= len(rest):
			return rest[n-1], cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMembers offers the project, then accounts.
func (a *app) completeMembers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeProjects(cmd, args, typed)
	case 1:
		return a.completeAccounts(cmd, nil, typed)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeSet offers the project, and then what --person-bind may be, whose value may be
// an argument of its own.
func (a *app) completeSet(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 && cmd.Flags().Changed("person-bind") {
		return []string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeProjects(cmd, args, typed)
}

// completeMove offers the project, then directories.
func (a *app) completeMove(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return a.completeProjects(cmd, args, typed)
}

// completeModes offers the modes of the policy, and those that every policy has.
func (a *app) completeModes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	r, _ := complete[api.AccessShowResult](cmd, a, api.AccessShow, struct{}{})
	return names(append(r.Modes, "search", "code", "auto"), func(s string) string { return s })
}

// completeProfiles offers the profiles that can be registered under, or all of them to look at.
func (a *app) completeProfiles(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir := profilesDir
	if f := cmd.Flags().Lookup("profiles-dir"); f != nil {
		dir = f.Value.String()
	}
	all, err := loadProfiles(dir)
	if err != nil { // its mistakes hide none of the built-in ones
		all, _ = loadProfiles("")
	}
	return names(all, func(p profileDocument) string { return p.Name })
}

// completeToolOfFlags offers the tools that the task or the project of the flags knows.
func (a *app) completeToolOfFlags(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	task, _ := cmd.Flags().GetString("task")
	project, _ := cmd.Flags().GetString("project")
	r, _ := complete[api.CapabilitiesResult](cmd, a, api.Capabilities, api.CapabilitiesParams{AskerParams: api.AskerParams{Task: task, Project: project}})
	return names(r.Rows, func(x api.CapabilityRow) string { return x.Tool })
}
