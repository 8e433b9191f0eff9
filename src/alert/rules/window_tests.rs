//! Windows: what is in them, what is counted once, what a rate is measured from.

use super::*;

fn rating() -> Rating {
    Rating {
        per_ms: 1_000,
        window_ms: 10_000,
        min_span_ms: 5_000,
        max_gap_ms: None,
        mode: RateMode::Rising,
        counter: false,
    }
}

#[test]
fn a_count_holds_each_reading_once_and_lets_it_go_in_time() {
    let mut window = CountWindow::default();
    assert!(window.insert(1_000, 1));
    assert!(!window.insert(1_000, 1));
    assert!(window.insert(1_000, 2));
    assert!(window.insert(500, 3));
    window.prune(10_500, 10_000);
    assert_eq!(window.len(), 2, "what is as old as the window is out of it");
    window.prune(20_000, 10_000);
    assert!(window.is_empty());
}

#[test]
fn a_full_window_drops_the_oldest_and_takes_none_older() {
    let mut window = CountWindow::default();
    for n in 0..=MAX_WINDOW_ENTRIES as i64 {
        assert!(window.insert(n, 0));
    }
    assert_eq!(window.len() as u64, MAX_WINDOW_ENTRIES);
    assert!(
        !window.insert(0, 0),
        "it was dropped: a replay must not bring it back"
    );
}

#[test]
fn a_rate_needs_a_span() {
    let mut window = RateWindow::default();
    let how = rating();
    assert_eq!(window.push(0, 10.0, &how), None);
    assert_eq!(window.push(4_999, 20.0, &how), None);
    assert_eq!(window.push(5_000, 20.0, &how), Some(2.0));
    // The baseline is the oldest within the window.
    assert_eq!(window.push(12_000, 20.0, &how), Some(0.0));
}

#[test]
fn directions_and_counters() {
    for (mode, expected) in [
        (RateMode::Rising, -2.0),
        (RateMode::Falling, 2.0),
        (RateMode::Abs, 2.0),
    ] {
        let how = Rating { mode, ..rating() };
        let mut window = RateWindow::default();
        window.push(0, 20.0, &how);
        assert_eq!(window.push(5_000, 10.0, &how), Some(expected));
    }
    let how = Rating {
        counter: true,
        ..rating()
    };
    let mut window = RateWindow::default();
    window.push(0, 1_000.0, &how);
    assert_eq!(window.push(5_000, 1_005.0, &how), Some(1.0));
    assert_eq!(
        window.push(6_000, 3.0, &how),
        None,
        "a restart is not a fall"
    );
    assert_eq!(window.push(11_000, 13.0, &how), Some(2.0));
}

#[test]
fn a_gap_starts_anew() {
    let how = Rating {
        max_gap_ms: Some(3_000),
        ..rating()
    };
    let mut window = RateWindow::default();
    window.push(0, 0.0, &how);
    window.push(3_000, 0.0, &how);
    assert_eq!(window.push(6_001, 60.0, &how), None);
}

#[test]
fn a_fast_device_is_kept_in_bounds() {
    let how = rating();
    let mut window = RateWindow::default();
    let mut rate = None;
    for n in 0..100_000 {
        rate = window.push(n, n as f64, &how);
    }
    assert!(window.kept.len() <= 600, "{}", window.kept.len());
    assert!((rate.unwrap() - 1_000.0).abs() < 1e-6);
}
