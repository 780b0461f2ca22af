#!/usr/bin/env python3
"""One libtorrent peer of the comparison: libtorrent_peer.py TORRENT SAVE_DIR SELF_IP seed|leech PEER_IP...

A leecher prints its seconds to completion from the common start T0 (epoch seconds); every peer then stays HOLD seconds.
Environment: UNCHOKE (slots, -1 unlimited), SUPER=1 (super-seeding), T0, HOLD.
"""
import os, sys, time
import libtorrent as lt

torrent, save_dir, ip, role, peers = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]
start = float(os.environ.get("T0", time.time()))
session = lt.session({
    "listen_interfaces": ip + ":6881", "enable_dht": False, "enable_lsd": False, "enable_upnp": False,
    "enable_natpmp": False, "alert_mask": 0, "unchoke_slots_limit": int(os.environ.get("UNCHOKE", "-1")),
    "enable_outgoing_utp": False, "enable_incoming_utp": False, "mixed_mode_algorithm": 0, "min_reconnect_time": 1,
})
params = lt.add_torrent_params()
params.ti = lt.torrent_info(torrent)
params.save_path = save_dir
params.flags &= ~(lt.torrent_flags.auto_managed | lt.torrent_flags.paused)
if role == "seed":
    params.flags |= lt.torrent_flags.seed_mode
    if os.environ.get("SUPER") == "1":
        params.flags |= lt.torrent_flags.super_seeding
handle = session.add_torrent(params)
time.sleep(max(0.0, start - time.time()))
began = time.time()
for peer in peers:
    handle.connect_peer((peer, 6881))
if role == "leech":
    while not handle.status().is_seeding:
        time.sleep(0.02)
    print(f"{ip} {time.time() - began:.2f}", flush=True)
time.sleep(float(os.environ.get("HOLD", "60")))
