//! Blobs as pieces: their layout, and the hash list by which each piece is verified on arrival.
