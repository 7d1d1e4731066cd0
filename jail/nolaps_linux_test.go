//go:build !laps

package jail

const tags = ""
