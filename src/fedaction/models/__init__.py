"""Networks in plain torch, written for one client; features come last, so that many clients stack well."""
