// Lists and calls through one of the TypeScript SDKs. Arguments: the mode, and the
// command as a JSON array. What it found is one JSON object on stdout.
const [mode, command] = process.argv.slice(2)
const [file, ...args] = JSON.parse(command)
const info = { name: 'suites', version: '1' }
let client, transport
if (mode === 'v1') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js')
  const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js')
  client = new Client(info)
  transport = new StdioClientTransport({ command: file, args })
} else {
  const { Client } = await import('@modelcontextprotocol/client')
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio')
  client = new Client(info, { versionNegotiation: { mode: mode.startsWith('20') ? { pin: mode } : mode } })
  transport = new StdioClientTransport({ command: file, args })
}
let version
if (mode === 'v1') transport.setProtocolVersion = v => { version = v }
await client.connect(transport)
const { tools } = await client.listTools()
const result = await client.callTool({ name: 'test_simple_text', arguments: {} })
let unknown
try {
  unknown = JSON.stringify(await client.callTool({ name: 'no_such_tool', arguments: {} }))
} catch (e) {
  unknown = String(e)
}
version ??= client.getNegotiatedProtocolVersion?.()
await client.close()
console.log(JSON.stringify({ tools: tools.map(t => t.name), text: JSON.stringify(result.content), version, unknown }))
