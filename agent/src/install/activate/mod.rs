//! Starting versions: by a command, or as a supervised child.
