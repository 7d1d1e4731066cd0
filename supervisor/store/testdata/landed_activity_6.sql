-- What one call brought back is found without a look at what all others did.
CREATE INDEX artifacts_by_call ON artifacts (call, n);
