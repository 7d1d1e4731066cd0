package bridge

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"postern/bridge/wire"
)

const weirdDir = "../integration/testdata/servers/weird/"

func lines(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile(weirdDir + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// TestWeird_NothingIsLost replays every shape of tool and result that typed proxies
// are known to lose, and compares what the runtime gets byte for byte.
func TestWeird_NothingIsLost(t *testing.T) {
	a := newAuthority(t)
	tools := lines(t, "tools.json")
	var names []string
	for _, def := range tools {
		name, _, _ := strings.Cut(strings.TrimPrefix(def, `{"name":"`), `"`)
		names = append(names, name)
	}
	conn := a.server([]string{"weird"}, names...)
	a.set(func() {
		for i := range a.tools {
			a.tools[i].Definition = []byte(tools[i])
		}
	})
	c := a.passed().initialize()

	kept := map[string]string{ // what a legacy runtime or its safety requires otherwise
		"out_array":  `{"name":"out_array","inputSchema":{"type":"object"}}`,
		"out_anyof":  `{"name":"out_anyof","inputSchema":{"type":"object"}}`,
		"out_notype": `{"name":"out_notype","inputSchema":{"type":"object"}}`,
		"bad_icon":   `{"name":"bad_icon","inputSchema":{"type":"object"},"icons":[{"src":"https://example.org/ok.png"}]}`,
	}
	var want []string
	for i, def := range tools {
		switch other, changed := kept[names[i]]; {
		case names[i] == "app_only": // for an app's page, not for the model
		case changed:
			want = append(want, other)
		default:
			want = append(want, def)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(want, ",") + `]}}`)

	for i, line := range lines(t, "results.txt") {
		name, members, _ := strings.Cut(line, " ")
		c.call(fmt.Sprint(i), name, `{}`)
		if strings.HasPrefix(name, "error") {
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":%s}`, i, members))
		} else {
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{%s}}`, i, members))
		}
	}

	// The other way: what arrives at the server is what was sent, but for the id.
	const params = `"name":"params","arguments":{"big":12345678901234567890,"f":[1.0,1e3,-0.0],"s":"\u00e9 é 😀","nested":{"Name":"x","name":"y","account":"a"}},"future":{"x":null}`
	c.send(`{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{%s}}`, params)
	got := c.line()
	if !strings.Contains(got, `,"method":"tools/call","params":{`+params+`}}`) {
		t.Errorf("the server got %s", got)
	}

	// The definitions reach the authority as the server wrote them.
	a.catalogue(t, conn)
	a.mu.Lock()
	defer a.mu.Unlock()
	if string(a.catalog[conn]) != "["+strings.Join(tools, ",")+"]" {
		t.Errorf("the catalogue is\n%s", a.catalog[conn])
	}
	for _, m := range a.heard {
		if m, ok := m.(wire.Catalogue); ok && len(m.Quarantined) > 0 {
			t.Errorf("quarantined %+v", m.Quarantined)
		}
	}
}
