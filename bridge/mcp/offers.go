package mcp

// Offers is what a server says that it has, beside tools.
type Offers struct{ Prompts, Resources, Subscribe, Logging bool }

// ReadOffers reads a server's capabilities.
func ReadOffers(capabilities Value) Offers {
	all, _ := Members(capabilities)
	resources, _ := Members(Find(all, "resources"))
	return Offers{
		Prompts:   Find(all, "prompts").Kind() == '{',
		Resources: Find(all, "resources").Kind() == '{',
		Subscribe: string(Find(resources, "subscribe")) == "true",
		Logging:   Find(all, "logging").Kind() == '{',
	}
}
