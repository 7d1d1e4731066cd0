package main

import (
	"fmt"
	"maps"
	"slices"

	"postern/near"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
)

// Patterns of names in an access policy.
const (
	channelName = `^[a-z][a-z0-9_-]*$`
	personName  = `^(\+?[0-9 ().-]+|[A-Za-z0-9._@-]+)$`
	accountName = `^acc_[0-9a-f-]{36}$`
	groupName   = `^[A-Za-z0-9._@-]*[0-9][A-Za-z0-9._@-]*$`
	toolName    = `^(\*/[A-Za-z0-9._-]+|[A-Za-z0-9._-]+(/(\*|[A-Za-z0-9._-]+))?)$`
)

// mostNumber is the greatest number of a person that may be written without quotes.
const mostNumber = 999_999_999_999_999

// value is what stands at a key, with a sentence about it.
type value struct {
	what   string
	schema map[string]any
}

func truth() map[string]any { return map[string]any{"type": "boolean"} }

func oneOf(words ...string) map[string]any { return map[string]any{"enum": words} }

// named is a mapping of names that anybody may choose; a key under which everything is
// commented out is one too.
func named(name, each map[string]any, most int) map[string]any {
	return map[string]any{"type": []string{"object", "null"}, "propertyNames": name, "additionalProperties": each, "maxProperties": most}
}

// needs is a mapping that has one of these keys.
func needs(keys ...string) map[string]any {
	var each []map[string]any
	for _, k := range keys {
		each = append(each, map[string]any{"required": []string{k}})
	}
	return map[string]any{"anyOf": each}
}

// policySchema makes the schema of access.yaml from the decoder's table of keys.
type policySchema struct {
	keys near.Sections
	used map[string]bool
	err  error
}

// section is a mapping of the keys of a section. A key of the decoder's that nothing is
// said of here is an error, as is one that the decoder does not take.
func (p *policySchema) section(name string, values map[string]value) map[string]any {
	p.used[name] = true
	if want, got := slices.Sorted(slices.Values(p.keys[name])), slices.Sorted(maps.Keys(values)); !slices.Equal(want, got) {
		p.err = fmt.Errorf("section %q of access.yaml takes %q, and %q are described", name, want, got)
	}
	keys := map[string]any{}
	for key, v := range values {
		schema := maps.Clone(v.schema)
		schema["description"] = v.what
		keys[key] = schema
	}
	out := object(keys, nil)
	out["type"] = []string{"object", "null"}
	return out
}

// filledSection is a section that may not be empty.
func (p *policySchema) filledSection(name string, values map[string]value) map[string]any {
	out := p.section(name, values)
	out["type"], out["minProperties"] = "object", 1
	return out
}

// accessSchema is the JSON schema of access.yaml.
func accessSchema() (map[string]any, error) {
	p := &policySchema{keys: access.Keys(), used: map[string]bool{}}
	channel := text(channelName, access.MaxChannel)
	root := p.section("", map[string]value{
		"modes":    {"Modes of your own, beside search, code and auto.", named(channel, p.mode(), policy.MaxModes)},
		"channels": {"Channels, and who may do what through each. One that is not declared admits nobody.", p.channels(channel)},
	})
	for name := range p.keys {
		if !p.used[name] && p.err == nil {
			p.err = fmt.Errorf("section %q of access.yaml is not described", name)
		}
	}
	return root, p.err
}

func (p *policySchema) mode() map[string]any {
	tools := map[string]any{"type": "array", "maxItems": policy.MaxList, "items": text(toolName, policy.MaxPattern)}
	classes := map[string]any{"type": "array", "maxItems": class.Count, "items": oneOf(class.All().Strings()...)}
	out := p.filledSection("modes.*", map[string]value{
		"allowed":              {"Tools that it includes: a tool's name, server/* or */operation. An empty list allows nothing.", tools},
		"denied":               {"Tools that it leaves out. A denial wins.", tools},
		"allowed_capabilities": {"Classes that it includes.", classes},
		"denied_capabilities":  {"Classes that it leaves out.", classes},
		"no_tools":             {"It includes no tool at all.", truth()},
		"whitelist_mode":       {"Only what is listed passes.", truth()},
	})
	out["if"] = map[string]any{"properties": map[string]any{"whitelist_mode": map[string]any{"const": true}}, "required": []string{"whitelist_mode"}}
	out["then"] = needs("allowed", "denied", "allowed_capabilities", "denied_capabilities")
	return out
}

// channels differ in whom they name: people of local are accounts, and it has no groups.
func (p *policySchema) channels(name map[string]any) map[string]any {
	person := text(personName, access.MaxIdentity)
	out := named(name, p.channel(person, p.groups()), access.MaxChannels)
	out["properties"] = map[string]any{access.Channel: p.channel(text(accountName, 0), map[string]any{"not": map[string]any{}})}
	return out
}

func (p *policySchema) channel(person, groups map[string]any) map[string]any {
	number := map[string]any{"type": "integer", "minimum": 0, "maximum": mostNumber}
	people := map[string]any{"type": "array", "maxItems": access.MaxEntries, "items": map[string]any{"anyOf": []any{person, number}}}
	return p.section("channels.*", map[string]value{
		"enabled":         {"false admits nobody. Without it: true.", truth()},
		"type":            {"Of whoever reads this file beside Postern.", map[string]any{"type": "string"}},
		"default_mode":    {"The widest mode of its people. Without it: search.", modeName()},
		"allow":           {"The older key: people without a ceiling.", people},
		"owners":          {"The older key: owners.", people},
		"reply_in_groups": {"The older key: groups are on.", truth()},
		"access": {"Who may do what.", p.section("channels.*.access", map[string]value{
			"admission": {"restricted, or open: people nobody knows get default.", oneOf("restricted", "open")},
			"default":   {"What people get whom nobody knows, where admission is open. Without it: chat.", p.reach("default", "chat", "read")},
			"users":     {"People, by their identities.", named(person, p.user(), access.MaxEntries)},
			"groups":    {"Groups of the channel.", groups},
		})},
	})
}

// modeName is a mode with a list; which there are, the same document says.
func modeName() map[string]any {
	out := text(channelName, access.MaxChannel)
	out["not"] = map[string]any{"const": policy.ModeAuto}
	return out
}

// reach is a level with write.
func (p *policySchema) reach(section string, levels ...string) map[string]any {
	return p.section("channels.*.access."+section, map[string]value{
		"level": {"chat: no tools. read: what only reads. full: everything.", oneOf(levels...)},
		"write": {"Writing of files and servers' data too. Without it: false.", truth()},
	})
}

func (p *policySchema) user() map[string]any {
	out := p.filledSection("channels.*.access.users.*", map[string]value{
		"level":   {"chat: no tools. read: what only reads. full: everything.", oneOf("chat", "read", "full")},
		"write":   {"Writing of files and servers' data too. Without it: false.", truth()},
		"role":    {"An owner has no ceiling, and no level.", oneOf("owner")},
		"blocked": {"Refused, whatever else the file says.", truth()},
	})
	blocked := map[string]any{"properties": map[string]any{"blocked": map[string]any{"const": true}}, "required": []string{"blocked"}}
	owner := needs("role")
	owner["not"] = needs("level", "write")
	out["anyOf"] = []any{blocked, owner, map[string]any{"required": []string{"level"}, "not": needs("role")}}
	return out
}

func (p *policySchema) groups() map[string]any {
	group := p.reach("groups.*", "chat", "read", "full")
	group["type"], group["required"] = "object", []string{"level"}
	out := p.section("channels.*.access.groups", map[string]value{
		"enabled":      {"Groups are on. Without it: what reply_in_groups says.", truth()},
		"default":      {"What groups get that are not named. Without it: read.", p.reach("default", "chat", "read", "full")},
		"default_mode": {"The widest mode in groups. Without it: search.", modeName()},
	})
	out["additionalProperties"], out["maxProperties"] = group, access.MaxEntries
	out["propertyNames"] = map[string]any{"anyOf": []any{oneOf(p.keys["channels.*.access.groups"]...), text(groupName, access.MaxIdentity)}}
	return out
}
