//! The files that an agent and its supervisor share: the contract between builds of different age.
//!
//! ```text
//! DATA/supervise/trial.json       the agent: try the build in this slot
//! DATA/supervise/boots.json       the supervisor: how often it was started, and why it was given up
//! DATA/supervise/remembered.json  the supervisor: the confirmed build as it last saw it
//! DATA/supervise/allowed.json     the agent, for itself: how long the rollout gives the next build
//! DATA/supervise/*.reserve        the supervisor: space for the first two, for when the disk is full
//! DATA/products/NAME/confirmed.json   the agent: the last confirmed build (see `install::slots`)
//! ```
//!
//! A supervisor is never upgraded in place, so it reads what agents of years to come write. These forms therefore stay as
//! they are: fields may be added, and none is removed or changes its meaning. Described in `docs/INSTALL.md`. Each file is
//! replaced as a whole; one that is torn, too long or of another `spec` counts as unreadable, never as something else.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{Boots, Facts, Named, Reading, Trial};
use groundswell_core::time::{Now, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::install::device::this_boot;
use crate::install::durable::{is_disk_full, make_folder, read_small, remove_file, replace};
use crate::install::files::Files;
use crate::install::reserve::Reserve;

const TRIAL: &str = "trial.json";
const ALLOWED: &str = "allowed.json";
const BOOTS: &str = "boots.json";
const REMEMBERED: &str = "remembered.json";
const CONFIRMED: &str = "confirmed.json";
/// What a trial cannot do without is written on a full disk too: the file once more beside itself, on blocks of up to
/// 16 KiB. One for each of the two that write, so that neither uses up the other's.
const TRIAL_RESERVE: Reserve = Reserve { name: "trial.reserve", size_bytes: 32 * 1024 };
const BOOTS_RESERVE: Reserve = Reserve { name: "boots.reserve", size_bytes: 32 * 1024 };
/// A longer file is not read: each has a few hundred bytes.
const MOST_BYTES: u64 = 64 * 1024;
/// Of a reason so much is kept: a verdict carries less.
const REASON_BYTES: usize = 1024;

/// The files.
#[derive(Clone, Debug)]
pub struct Marks {
    files: Arc<dyn Files>,
    folder: PathBuf,
    /// The folder of the agent's own product, where it is one.
    product: Option<PathBuf>,
}

/// `trial.json`: the build to be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialMark {
    /// Names this trial: the name of the claim under which it happens.
    pub trial: String,
    /// The slot.
    pub slot: Slot,
    /// SHA-256 of the binary.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How often it may be started.
    pub most_boots: u32,
    /// How long it may take to be confirmed.
    pub confirm_within_seconds: u64,
    /// The run of the machine in which that began, as `/proc/sys/kernel/random/boot_id` has it.
    pub boot: String,
    /// When it began, in milliseconds of CLOCK_BOOTTIME.
    pub since_ms: u64,
    /// The same in milliseconds of CLOCK_MONOTONIC, which stands while the machine sleeps. Agents of before wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_awake_ms: Option<u64>,
}

/// The run of a supervisor in which its files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The run of the machine, as `/proc/sys/kernel/random/boot_id` has it.
    pub boot: String,
    /// When it began, in milliseconds of CLOCK_MONOTONIC.
    pub began_ms: u64,
}

impl Run {
    /// One that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self { boot: this_boot().0, began_ms: clock::now().awake_ms }
    }
}

#[derive(Serialize, Deserialize)]
struct NamedMark {
    slot: Slot,
    sha256: Digest,
    #[serde(rename = "sizeBytes")]
    size_bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootsMark {
    trial: String,
    boots: u32,
    /// Supervisors of before wrote none.
    #[serde(default)]
    stops: u32,
    given_up: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllowedMark {
    trial: String,
    within_seconds: u64,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    spec: u32,
    #[serde(flatten)]
    content: T,
}

impl TrialMark {
    /// How long it may still take, at `now` in this run of its supervisor. While the machine slept, or nothing kept it running,
    /// it could do nothing: what counts is time awake in this run. A trial of an earlier one, of the machine too, gets its whole
    /// time anew: its boots are counted all the same, and it goes back by itself when its time is over.
    #[must_use]
    pub fn left_ms(&self, run: &Run, now: Now) -> u64 {
        let runs_ms = now.awake_ms.saturating_sub(run.began_ms);
        let elapsed_ms = match self.since_awake_ms {
            _ if self.boot != run.boot => runs_ms,
            Some(since_ms) => now.awake_ms.saturating_sub(since_ms).min(runs_ms),
            None => now.boot.since_ms(Time(self.since_ms)).min(runs_ms),
        };
        self.confirm_within_seconds.saturating_mul(1_000).saturating_sub(elapsed_ms)
    }
}

impl Marks {
    /// The files below a data folder; their folder is made when something is written. `product` is that of the agent itself.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, data: &Path, product: Option<&str>) -> Self {
        let product = product.map(|name| data.join("products").join(name));
        Self { files, folder: Self::folder_in(data), product }
    }

    /// The folder of the files below a data folder.
    #[must_use]
    pub fn folder_in(data: &Path) -> PathBuf {
        data.join("supervise")
    }

    /// Their folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that the supervisor decides by.
    #[must_use]
    pub fn facts(&self, run: &Run, now: Now) -> Facts {
        let trial = match self.trial() {
            Reading::Said(mark) => Reading::Said(Trial {
                left_ms: mark.left_ms(run, now),
                name: mark.trial,
                build: Named { slot: mark.slot, sha256: mark.sha256, size_bytes: mark.size_bytes },
                most_boots: mark.most_boots.max(1),
            }),
            Reading::Absent => Reading::Absent,
            Reading::Unreadable => Reading::Unreadable,
        };
        let confirmed = self.product.as_ref().map_or(Reading::Absent, |folder| self.named(&folder.join(CONFIRMED)));
        Facts { confirmed, remembered: self.named(&self.folder.join(REMEMBERED)), trial, boots: self.boots() }
    }

    /// The build to be tried.
    #[must_use]
    pub fn trial(&self) -> Reading<TrialMark> {
        self.read(&self.folder.join(TRIAL))
    }

    /// How a trial has fared.
    #[must_use]
    pub fn boots(&self) -> Reading<Boots> {
        match self.read::<BootsMark>(&self.folder.join(BOOTS)) {
            Reading::Said(BootsMark { trial, boots, stops, given_up }) => Reading::Said(Boots { trial, boots, stops, given_up }),
            Reading::Absent => Reading::Absent,
            Reading::Unreadable => Reading::Unreadable,
        }
    }

    /// Asks for a trial.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_trial(&self, mark: &TrialMark) -> io::Result<()> {
        self.write_at_last(TRIAL, mark, TRIAL_RESERVE)
    }

    /// Writes down how long the rollout gives a trial, before that is asked for.
    ///
    /// # Errors
    /// What the file system says.
    pub fn allow(&self, trial: &str, within: Duration) -> io::Result<()> {
        self.write(ALLOWED, &AllowedMark { trial: trial.to_owned(), within_seconds: within.as_secs() })
    }

    /// How long the rollout gives this trial, where that was written down.
    #[must_use]
    pub fn allowed(&self, trial: &str) -> Option<Duration> {
        match self.read::<AllowedMark>(&self.folder.join(ALLOWED)) {
            Reading::Said(allowed) if allowed.trial == trial => Some(Duration::from_secs(allowed.within_seconds)),
            _ => None,
        }
    }

    /// Takes that back.
    ///
    /// # Errors
    /// What the file system says.
    pub fn clear_trial(&self) -> io::Result<()> {
        remove_file(&*self.files, &self.folder.join(TRIAL))?;
        match self.files.sync_folder(&self.folder) {
            // Nothing was ever written there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    /// Writes down how a trial has fared.
    ///
    /// # Errors
    /// What the file system says; what was written before still holds.
    pub fn write_boots(&self, boots: &Boots) -> io::Result<()> {
        let given_up = boots.given_up.as_deref().map(|reason| cut(reason, REASON_BYTES).to_owned());
        let Boots { trial, boots, stops, .. } = boots.clone();
        self.write_at_last(BOOTS, &BootsMark { trial, boots, stops, given_up }, BOOTS_RESERVE)
    }

    /// Takes the space for a trial on a full disk, where it is not held and can be had.
    pub fn make_reserve(&self) {
        for reserve in [TRIAL_RESERVE, BOOTS_RESERVE] {
            reserve.make(&*self.files, &self.folder);
        }
    }

    /// Writes down which build is the confirmed one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remember(&self, named: &Named) -> io::Result<()> {
        let Named { slot, sha256, size_bytes } = *named;
        self.write(REMEMBERED, &NamedMark { slot, sha256, size_bytes })
    }

    fn named(&self, path: &Path) -> Reading<Named> {
        match self.read::<NamedMark>(path) {
            Reading::Said(NamedMark { slot, sha256, size_bytes }) => Reading::Said(Named { slot, sha256, size_bytes }),
            Reading::Absent => Reading::Absent,
            Reading::Unreadable => Reading::Unreadable,
        }
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Reading<T> {
        match read_small(&*self.files, path, MOST_BYTES).map(|text| serde_json::from_slice::<Versioned<T>>(&text)) {
            Ok(Ok(Versioned { spec: 1, content })) => Reading::Said(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Absent,
            _ => Reading::Unreadable,
        }
    }

    /// Writes a file, from its reserve when the disk is full.
    fn write_at_last<T: Serialize>(&self, name: &str, content: &T, reserve: Reserve) -> io::Result<()> {
        match self.write(name, content) {
            Err(error) if is_disk_full(&error) && reserve.spend(&*self.files, &self.folder) => self.write(name, content),
            written => written,
        }
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&Versioned { spec: 1, content }).map_err(io::Error::from)?;
        make_folder(&*self.files, &self.folder)?;
        replace(&*self.files, &self.folder, name, &text)
    }
}

fn cut(text: &str, most_bytes: usize) -> &str {
    let mut end = most_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
