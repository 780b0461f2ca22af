//! The published form: `{"<kind>": base64(body), "signatures": [{"kid","sig"}]}`.
