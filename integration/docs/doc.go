// Package docs runs the commands of the documents: each page against a private Postern
// with real jails, line by line, in the order in which a reader meets them.
//
// It needs root and fails in CI without it. A line that ends with another status than
// the page says fails, and so does one that is not run and not excused by name with a
// reason. What a page leaves to the reader (ids, users, directories of the host) is put
// in; nothing else of a line is changed.
//
// Nobody imports it. Whether a command has the flags that a page gives it is tested
// beside it, in package integration, for every document.
package docs
