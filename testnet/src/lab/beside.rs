//! What else brings a file to many, in the same lab.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::process::Command;

use super::Lab;
use crate::fleet::error::FleetError;

const PEER: &str = include_str!("../../bench/libtorrent_peer.py");
const MAKE: &str = include_str!("../../bench/libtorrent_make.py");
/// Piece of the torrent, in KiB.
const PIECE: &str = "256";
/// From the start of the programs to the common start of the download.
const BEGINS_AFTER: Duration = Duration::from_secs(9);

/// Seconds from the common start until each host but the first has all of `file`, in order: libtorrent's fastest setting
/// without a limit on uploads. Needs Python with libtorrent (`pip install libtorrent`).
///
/// # Errors
/// When it is not there, or fails.
pub async fn libtorrent(lab: &Lab, file: &Path, folder: &Path) -> Result<Vec<f64>, FleetError> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(FleetError::io(format!("cannot write {}", path.display()))).map(|()| path)
    };
    let (peer, make) = (write("peer.py", PEER)?, write("make.py", MAKE)?);
    let torrent = folder.join("file.torrent");
    let mut command = Command::new("python3");
    command.args(["-W", "ignore"]).arg(&make).arg(file).arg(PIECE).arg(&torrent).arg("v2");
    let made = command.output().await.map_err(FleetError::io("cannot run python3"))?;
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr).into_owned();
        return Err(super::refused(format!("libtorrent made no torrent (pip install libtorrent): {}", why.trim())));
    }
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + BEGINS_AFTER;
    let mut running = Vec::new();
    for (at, host) in lab.hosts().iter().enumerate() {
        let save = folder.join(format!("torrent-{at}"));
        fs::create_dir_all(&save).map_err(FleetError::io(format!("cannot make {}", save.display())))?;
        let (role, save, hold) = match at {
            0 => ("seed", file.parent().unwrap_or(folder), "600"),
            _ => ("leech", save.as_path(), "6"),
        };
        let [program, arguments @ ..] = host.enter();
        let mut command = Command::new(program);
        command.args(arguments).args(["python3", "-W", "ignore"]).arg(&peer).arg(&torrent).arg(save);
        command.arg(host.address.to_string()).arg(role);
        command.args(lab.hosts().iter().take(if at == 0 { 0 } else { at }).map(|other| other.address.to_string()));
        command.env("HOLD", hold).env("T0", start.as_secs_f64().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        running.push(command.spawn().map_err(FleetError::io("cannot run python3"))?);
    }
    let mut took = Vec::new();
    let _seed = running.remove(0);
    for leech in running {
        let ended = leech.wait_with_output().await.map_err(FleetError::io("cannot wait for libtorrent"))?;
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        let seconds = told.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        took.push(seconds.ok_or_else(|| super::refused(format!("libtorrent said `{}`", told.trim())))?);
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}
