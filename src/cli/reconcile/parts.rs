//! What is expected, sorted into one file for each slice of time, because a day of a large fleet
//! does not fit into memory. The files are in a folder of their own, which goes with the process
//! (and stays where it is killed).

use std::fs::{self, OpenOptions};
use std::io::Write;

use anyhow::Context;
use tempfile::TempDir;

use super::compare::Expected;

/// Bytes of one reading: device, time, count.
const SIZE: usize = 4 + 8 + 4;

/// Gathered in memory for each slice before it is written.
const GATHERED: usize = 1_024 * SIZE;

/// See the module's head.
pub struct Parts {
    folder: TempDir,
    from: i64,
    slice: i64,
    gathered: Vec<Vec<u8>>,
}

impl Parts {
    /// For times from `from` until before `to`, in slices of so many milliseconds.
    pub fn new(from: i64, to: i64, slice: i64) -> anyhow::Result<Self> {
        let count = usize::try_from((to - from + slice - 1) / slice)?;
        Ok(Self {
            folder: tempfile::Builder::new()
                .prefix("tidegate-reconcile-")
                .tempdir()
                .context("cannot make a folder for temporary files")?,
            from,
            slice,
            gathered: vec![Vec::new(); count],
        })
    }

    /// Adds a reading; `false`: it is outside the range.
    pub fn add(&mut self, (device, at, count): Expected) -> anyhow::Result<bool> {
        let part = usize::try_from((at - self.from).div_euclid(self.slice)).ok();
        let Some(part) = part.filter(|part| *part < self.gathered.len()) else {
            return Ok(false);
        };
        let bytes = &mut self.gathered[part];
        bytes.extend(device.to_le_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        if bytes.len() >= GATHERED {
            let path = self.folder.path().join(part.to_string());
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .and_then(|mut file| file.write_all(bytes))
                .with_context(|| format!("cannot write {}", path.display()))?;
            bytes.clear();
        }
        Ok(true)
    }

    /// Takes out everything of slice `part`.
    pub fn take(&mut self, part: usize) -> anyhow::Result<Vec<Expected>> {
        let path = self.folder.path().join(part.to_string());
        let mut bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        bytes.append(&mut self.gathered[part]);
        // Its folder goes anyway.
        fs::remove_file(path).ok();
        Ok(bytes.chunks_exact(SIZE).filter_map(reading).collect())
    }
}

fn reading(bytes: &[u8]) -> Option<Expected> {
    let (device, rest) = bytes.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let (count, _) = rest.split_first_chunk()?;
    Some((
        u32::from_le_bytes(*device),
        i64::from_le_bytes(*at),
        u32::from_le_bytes(*count),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_back_by_slice() {
        let mut parts = Parts::new(1_000, 3_500, 1_000).unwrap();
        for at in [999, 4_000] {
            assert!(!parts.add((0, at, 1)).unwrap(), "{at}");
        }
        let many: Vec<Expected> = (0..3_000)
            .map(|n| (n, 2_000 + i64::from(n % 1_000), 1))
            .collect();
        for reading in &many {
            assert!(parts.add(*reading).unwrap());
        }
        assert!(parts.add((7, 1_000, 2)).unwrap());
        assert!(parts.add((8, 3_499, 1)).unwrap());
        assert_eq!(parts.take(0).unwrap(), [(7, 1_000, 2)]);
        assert_eq!(parts.take(1).unwrap(), many);
        assert_eq!(parts.take(2).unwrap(), [(8, 3_499, 1)]);
        assert!(parts.take(1).unwrap().is_empty());
    }
}
