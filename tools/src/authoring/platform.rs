//! Which platform a file is the bare binary of, by its name; and whether its first bytes agree.

use groundswell_core::text::Platform;

const SYSTEMS: [&str; 4] = ["linux", "darwin", "windows", "freebsd"];
const MACHINES: [&str; 6] = ["amd64", "arm64", "arm", "386", "riscv64", "ppc64le"];
/// The machines of ELF headers (`e_machine`).
const ELF_MACHINES: [(&str, u16); 6] =
    [("amd64", 0x3e), ("arm64", 0xb7), ("arm", 0x28), ("386", 0x03), ("riscv64", 0xf3), ("ppc64le", 0x15)];

/// The platform of a file named `linux-amd64` or ending in `-linux-amd64`; `None` for archives, checksums and the rest.
pub(crate) fn of_name(name: &str) -> Option<Platform> {
    for system in SYSTEMS {
        for machine in MACHINES {
            let platform = format!("{system}-{machine}");
            if name.strip_suffix(&platform).is_some_and(|before| before.is_empty() || before.ends_with('-')) {
                return Platform::new(platform).ok();
            }
        }
    }
    None
}

/// Why a file that begins with `head` cannot be the binary of `platform`; `None` when it can.
///
/// Only ELF is judged: scripts and other formats pass.
pub(crate) fn contradiction(platform: &Platform, head: &[u8]) -> Option<String> {
    let machine = match head {
        [0x7f, b'E', b'L', b'F', _, order, ..] => {
            let pair = head.get(18..20).and_then(|pair| <[u8; 2]>::try_from(pair).ok())?;
            if *order == 2 { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        }
        _ => return None,
    };
    let (system, wanted) = platform.split_once('-')?;
    if matches!(system, "darwin" | "windows") {
        return Some(format!("is an ELF file, which {platform} does not run"));
    }
    let is = ELF_MACHINES.iter().find(|(_, code)| *code == machine).map_or("another machine", |(name, _)| name);
    (is != wanted).then(|| format!("is an ELF file for {is}, not for {platform}"))
}

/// The platform of this machine, as far as it has a name here.
pub(crate) fn of_this_machine() -> Platform {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Platform::new(format!("{}-{machine}", std::env::consts::OS)).expect("the names of systems and machines are plain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_the_end_of_a_name_tells_the_platform() {
        let platform = |name: &str| of_name(name).map(|platform| platform.to_string());
        assert_eq!(platform("linux-amd64").as_deref(), Some("linux-amd64"));
        assert_eq!(platform("bcd-linux-arm64").as_deref(), Some("linux-arm64"));
        for other in ["bcd-linux-amd64.tar.gz", "bcd-linux-amd64.sha256", "xlinux-amd64", "linux", "readme"] {
            assert_eq!(platform(other), None, "{other}");
        }
    }

    #[test]
    fn a14_a_binary_of_another_machine_is_noticed() {
        let mut head = [0; 20];
        head[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        head[18] = 0xb7;
        let amd64 = Platform::new("linux-amd64").unwrap();
        let arm64 = Platform::new("linux-arm64").unwrap();
        assert!(contradiction(&arm64, &head).is_none());
        assert!(contradiction(&amd64, &head).unwrap().contains("arm64"));
        assert!(contradiction(&amd64, b"#!/bin/sh\n").is_none());
    }
}
