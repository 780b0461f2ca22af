//! The one form of a body: canonical JSON (RFC 8785) of integers, ASCII keys and strings.
