#!/usr/bin/env python3
"""libtorrent_make.py FILE PIECE_KIB OUT v1|v2"""
import os, sys
import libtorrent as lt

path, piece, out, version = sys.argv[1], int(sys.argv[2]) * 1024, sys.argv[3], sys.argv[4]
files = lt.file_storage()
lt.add_files(files, path)
flags = lt.create_torrent.v2_only if version == "v2" else lt.create_torrent.v1_only
torrent = lt.create_torrent(files, piece_size=piece, flags=flags)
lt.set_piece_hashes(torrent, os.path.dirname(os.path.abspath(path)))
with open(out, "wb") as f:
    f.write(lt.bencode(torrent.generate()))
