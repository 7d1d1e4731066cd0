package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/api/documented"
)

// prints says what a command prints with --json: one of some documents, and with a flag,
// or always, documents one a line. None has a reason.
type prints struct {
	one   []any
	flag  string
	lines []any
	none  string
}

// printed is every command. docs/json.md is written from it, by what reads the types of the
// sockets: go test ./supervisor/api -run Documented -update.
var printed = map[string]prints{
	"postern access default":        {one: []any{api.AccessEditResult{}}},
	"postern access group":          {one: []any{api.AccessEditResult{}}},
	"postern access groups":         {one: []any{api.AccessEditResult{}}},
	"postern access matrix":         {one: []any{api.AccessShowResult{}}},
	"postern access pair":           {one: []any{api.PairResult{}}},
	"postern access preset":         {one: []any{api.AccessEditResult{}}},
	"postern access redeem":         {one: []any{api.PairedRow{}}},
	"postern access set":            {one: []any{api.AccessEditResult{}}},
	"postern access show":           {one: []any{shownAccess{}}},
	"postern access unpair":         {one: []any{api.RevokeResult{}}},
	"postern account activate":      {one: []any{api.AccountResult{}}},
	"postern account add":           {one: []any{api.AccountResult{}}},
	"postern account delete":        {one: []any{api.AccountEndResult{}}},
	"postern account list":          {one: []any{api.AccountListResult{}}},
	"postern account show":          {one: []any{api.AccountResult{}}},
	"postern account suspend":       {one: []any{api.RevokeResult{}}},
	"postern activity":              {one: []any{api.ActivityResult{}}, flag: "--follow", lines: []any{api.ActivityRow{}}},
	"postern activity export":       {lines: []any{activity.Exported{}}},
	"postern activity show":         {one: []any{api.RecordResult{}}},
	"postern artifact get":          {one: []any{api.ArtifactRow{}}},
	"postern artifact list":         {one: []any{api.ArtifactListResult{}}},
	"postern backup":                {one: []any{api.BackupManifest{}}},
	"postern capabilities":          {one: []any{api.CapabilitiesResult{}}},
	"postern check":                 {one: []any{api.CheckResult{}}},
	"postern client-config":         {one: []any{clientConfigDocument{}}},
	"postern completion bash":       {none: "it prints a script"},
	"postern completion fish":       {none: "it prints a script"},
	"postern completion powershell": {none: "it prints a script"},
	"postern completion zsh":        {none: "it prints a script"},
	"postern connect":               {none: "its standard output is the runtime's"},
	"postern connection accept":     {one: []any{acceptedDocument{}}},
	"postern connection add":        {one: []any{api.ConnectionResult{}}},
	"postern connection disable":    {one: []any{api.RevokeResult{}}},
	"postern connection enable":     {one: []any{api.ConnectionResult{}}},
	"postern connection grant":      {one: []any{api.ConnectionResult{}}},
	"postern connection list":       {one: []any{api.ConnectionListResult{}}},
	"postern connection revoke":     {one: []any{api.RevokeResult{}}},
	"postern connection show":       {one: []any{api.ConnectionResult{}}},
	"postern credential add":        {one: []any{api.CredentialResult{}}},
	"postern credential list":       {one: []any{api.CredentialListResult{}}},
	"postern credential revoke":     {one: []any{api.CredentialEndResult{}}},
	"postern credential rotate":     {one: []any{api.CredentialEndResult{}}},
	"postern debug bundle":          {one: []any{bundleResult{}}},
	"postern doctor":                {one: []any{doctorDocument{}}},
	"postern drain":                 {one: []any{api.DrainResult{}}},
	"postern explain":               {one: []any{api.ExplainResult{}}},
	"postern logs":                  {one: []any{api.LogsResult{}}, flag: "--follow", lines: []any{api.LogRow{}}},
	"postern profile check":         {one: []any{profileMistakes{}}},
	"postern profile list":          {one: []any{profileList{}}},
	"postern profile show":          {one: []any{profileDocument{}, profileFile{}}},
	"postern project add":           {one: []any{api.ProjectResult{}}},
	"postern project delete":        {one: []any{api.RevokeResult{}}},
	"postern project list":          {one: []any{api.ProjectListResult{}}},
	"postern project member add":    {one: []any{api.MemberResult{}}},
	"postern project member remove": {one: []any{api.RevokeResult{}}},
	"postern project move":          {one: []any{api.ProjectSetResult{}}},
	"postern project set":           {one: []any{api.ProjectSetResult{}}},
	"postern project show":          {one: []any{api.ProjectShowResult{}}},
	"postern ps":                    {one: []any{api.PsResult{}}},
	"postern quota":                 {one: []any{api.QuotaResult{}}},
	"postern readonly":              {one: []any{api.ReadOnlyResult{}}},
	"postern restore":               {one: []any{restored{}}},
	"postern server add":            {one: []any{serverDocument{}}},
	"postern server delete":         {one: []any{api.ServerChangeResult{}}},
	"postern server diff":           {one: []any{api.ServerDiffResult{}}},
	"postern server gc":             {one: []any{api.ServerGCResult{}}},
	"postern server list":           {one: []any{api.ServerListResult{}}},
	"postern server probe":          {one: []any{api.CatalogueResult{}}},
	"postern server show":           {one: []any{serverDocument{}, serverSeen{}}},
	"postern server update":         {one: []any{serverDocument{}}},
	"postern status":                {one: []any{statusShown{}}},
	"postern task list":             {one: []any{api.TaskListResult{}}},
	"postern task new":              {one: []any{api.TaskResult{}}},
	"postern task revoke":           {one: []any{api.RevokeResult{}}},
	"postern task show":             {one: []any{api.TaskResult{}}},
	"postern task token":            {one: []any{api.TaskResult{}}},
	"postern top":                   {flag: "--once", one: []any{topFrame{}}, lines: []any{topFrame{}}},
	"postern version":               {one: []any{versionDocument{}}},
}

// Every command takes --json, so each says what it prints, by a type.
func TestEveryCommandSaysWhatItPrints(t *testing.T) {
	seen := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		// A group says no more than that a command is missing.
		if name := c.CommandPath(); !c.HasSubCommands() || name == "postern activity" {
			seen[name] = true
			if p := printed[name]; len(p.one)+len(p.lines) == 0 && p.none == "" {
				t.Errorf("%s: what it prints with --json is not in the table", name)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
	for name, p := range printed {
		if !seen[name] {
			t.Errorf("%s is in the table and is no command", name)
		}
		for _, v := range slices.Concat(p.one, p.lines) {
			if reflect.TypeOf(v).Kind() != reflect.Struct {
				t.Errorf("%s: %T is no document", name, v)
			}
		}
	}
}

// jsonPage is docs/json.md.
func jsonPage(t testing.TB) *documented.Page {
	t.Helper()
	raw, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	p, err := documented.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// recorder is a program of postern's name that keeps what the real one prints with --json,
// unless it goes on until it is interrupted.
const recorder = `#!/bin/sh
case " $* " in
*" --follow "*|*" -f "*|*" top "*) exec "$PROGRAM" "$@";;
*" --json "*) ;;
*) exec "$PROGRAM" "$@";;
esac
kept=$(mktemp -d "$RECORDS/XXXXXX") || exit 99
printf '%s\n' "$@" >"$kept/args"
"$PROGRAM" "$@" >"$kept/out"
status=$?
cat "$kept/out"
exit $status
`

// checkRecords holds every document that the scripts got against the page. That each
// document was seen, integration/e2e tells, of a whole Postern.
func checkRecords(t *testing.T, dir string) {
	t.Helper()
	p := jsonPage(t)
	records, err := filepath.Glob(filepath.Join(dir, "*", "args"))
	if err != nil || len(records) == 0 {
		t.Fatalf("nothing was recorded: %v", err)
	}
	for _, record := range records {
		raw, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.ReadFile(filepath.Join(filepath.Dir(record), "out"))
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
		command := p.Command("postern", args)
		if command == "" { // of a command that there is not, and of none but --version
			command = "postern version"
		}
		if _, err := p.Check(command, out); err != nil {
			t.Errorf("postern %s\n%s\nis not as docs/json.md has it: %v", strings.Join(args, " "), out, err)
		}
	}
}
