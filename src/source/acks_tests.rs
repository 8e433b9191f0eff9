//! The life of deliveries across connections.

use super::*;

fn arrival(packet: u16, dup: bool, fingerprint: u64) -> Arrival {
    Arrival {
        packet,
        qos: QoS::AtLeastOnce,
        dup,
        fingerprint,
        weight: 10,
        at: Instant::now(),
    }
}

fn admit(acks: &mut Acks, packet: u16, dup: bool, fingerprint: u64) -> u64 {
    match acks.arrived(arrival(packet, dup, fingerprint)) {
        (Admission::New(number), due) if due.is_empty() => number,
        other => panic!("{other:?}"),
    }
}

fn packets(due: &[Ack]) -> Vec<u16> {
    due.iter().map(|ack| ack.packet).collect()
}

#[test]
fn acknowledgements_leave_in_arrival_order() {
    let mut acks = Acks::default();
    let numbers: Vec<_> = (1..=3)
        .map(|p| admit(&mut acks, p, false, u64::from(p)))
        .collect();
    assert!(acks.settled(numbers[2], 10).is_empty());
    assert!(acks.settled(numbers[1], 10).is_empty());
    assert_eq!((acks.unacked(), acks.bytes()), (3, 10));
    assert_eq!(packets(&acks.settled(numbers[0], 10)), [1, 2, 3]);
    assert_eq!((acks.unacked(), acks.leaving(), acks.bytes()), (3, 3, 0));
    acks.sent(2);
    assert_eq!(acks.unacked(), 1);
}

#[test]
fn a_repeat_on_a_live_connection_is_folded_and_acknowledged_once() {
    let mut acks = Acks::default();
    let number = admit(&mut acks, 1, false, 7);
    assert_eq!(acks.arrived(arrival(1, true, 7)).0, Admission::Folded);
    assert_eq!(packets(&acks.settled(number, 10)), [1]);
    acks.sent(1);
    // The id is free again: another message may have it.
    admit(&mut acks, 1, false, 8);
}

#[test]
fn a_late_settlement_never_acknowledges_on_the_next_connection() {
    let mut acks = Acks::default();
    let old = admit(&mut acks, 1, false, 7);
    acks.severed();
    acks.connected(false);
    let new = admit(&mut acks, 1, false, 8);
    assert!(acks.settled(old, 10).is_empty());
    assert_eq!(packets(&acks.settled(new, 10)), [1]);
}

#[test]
fn a_redelivery_after_a_reconnect_is_folded_into_the_one_on_its_way() {
    let mut acks = Acks::default();
    let old = admit(&mut acks, 1, false, 7);
    acks.severed();
    acks.connected(true);
    assert_eq!(
        acks.arrived(arrival(1, true, 7)),
        (Admission::Folded, vec![])
    );
    assert_eq!(acks.bytes(), 10);
    assert_eq!(packets(&acks.settled(old, 10)), [1]);
    assert_eq!(acks.bytes(), 0);
}

#[test]
fn a_redelivery_of_what_was_stored_meanwhile_is_acknowledged_at_once() {
    let mut acks = Acks::default();
    let old = admit(&mut acks, 1, false, 7);
    acks.severed();
    assert!(acks.settled(old, 10).is_empty());
    acks.connected(true);
    let (admission, due) = acks.arrived(arrival(1, true, 7));
    assert_eq!((admission, packets(&due)), (Admission::Folded, vec![1]));
}

#[test]
fn a_fold_survives_any_number_of_reconnects() {
    let mut acks = Acks::default();
    let old = admit(&mut acks, 1, false, 7);
    for _ in 0..3 {
        acks.severed();
        acks.connected(true);
        assert_eq!(
            acks.arrived(arrival(1, true, 7)),
            (Admission::Folded, vec![])
        );
    }
    acks.severed();
    assert!(acks.settled(old, 10).is_empty());
    acks.connected(true);
    assert_eq!(packets(&acks.arrived(arrival(1, true, 7)).1), [1]);
}

#[test]
fn the_same_id_with_other_content_or_without_dup_is_another_message() {
    for (dup, fingerprint) in [(true, 8), (false, 7)] {
        let mut acks = Acks::default();
        let old = admit(&mut acks, 1, false, 7);
        acks.severed();
        acks.connected(true);
        let new = admit(&mut acks, 1, dup, fingerprint);
        assert!(acks.settled(old, 10).is_empty());
        assert_eq!(packets(&acks.settled(new, 10)), [1]);
    }
}

#[test]
fn an_id_the_broker_reuses_too_early_is_acknowledged_once_for_its_last_message() {
    let mut acks = Acks::default();
    let first = admit(&mut acks, 1, false, 7);
    let second = admit(&mut acks, 1, false, 8);
    assert!(acks.settled(first, 10).is_empty());
    assert_eq!(packets(&acks.settled(second, 10)), [1]);
}

#[test]
fn done_but_waiting_for_an_earlier_one_is_acknowledged_when_repeated() {
    let mut acks = Acks::default();
    let first = admit(&mut acks, 1, false, 7);
    let second = admit(&mut acks, 2, false, 8);
    assert!(acks.settled(second, 10).is_empty());
    acks.severed();
    acks.connected(true);
    assert_eq!(
        acks.arrived(arrival(1, true, 7)),
        (Admission::Folded, vec![])
    );
    assert_eq!(
        acks.arrived(arrival(2, true, 8)),
        (Admission::Folded, vec![])
    );
    assert_eq!(packets(&acks.settled(first, 10)), [1, 2]);
}

#[test]
fn the_oldest_age_counts_from_arrival() {
    let mut acks = Acks::default();
    let start = Instant::now();
    acks.arrived(Arrival {
        at: start,
        ..arrival(1, false, 1)
    });
    assert_eq!(
        acks.oldest(start + Duration::from_secs(3)),
        Duration::from_secs(3)
    );
}

#[test]
fn a_lost_message_is_new_when_it_comes_again() {
    let mut acks = Acks::default();
    let lost = admit(&mut acks, 1, false, 7);
    acks.lost(lost, 10);
    assert_eq!(acks.bytes(), 0);
    acks.severed();
    acks.connected(true);
    let again = admit(&mut acks, 1, true, 7);
    assert_eq!(packets(&acks.settled(again, 10)), [1]);
}

#[test]
fn an_acknowledgement_that_did_not_leave_is_sent_for_the_repeated_delivery() {
    let mut acks = Acks::default();
    let first = admit(&mut acks, 1, false, 7);
    let second = admit(&mut acks, 2, false, 8);
    assert_eq!(packets(&acks.settled(first, 10)), [1]);
    assert_eq!(packets(&acks.settled(second, 10)), [2]);
    acks.sent(1);
    acks.severed();
    acks.connected(true);
    // The first one left: should it come again all the same, it is taken as new.
    admit(&mut acks, 1, true, 7);
    assert_eq!(
        acks.arrived(arrival(2, true, 8)),
        (Admission::Folded, vec![])
    );
}

#[test]
fn a_repeat_that_crosses_its_acknowledgement_is_folded() {
    let mut acks = Acks::default();
    let number = admit(&mut acks, 1, false, 7);
    assert_eq!(packets(&acks.settled(number, 10)), [1]);
    assert_eq!(
        acks.arrived(arrival(1, true, 7)),
        (Admission::Folded, vec![])
    );
}

#[test]
fn the_oldest_age_survives_a_reconnect() {
    let mut acks = Acks::default();
    let start = Instant::now();
    let later = start + Duration::from_secs(5);
    acks.arrived(Arrival {
        at: start,
        ..arrival(1, false, 1)
    });
    acks.severed();
    assert_eq!(acks.oldest(later), Duration::from_secs(5));
    acks.connected(true);
    acks.arrived(Arrival {
        at: later,
        ..arrival(1, true, 1)
    });
    assert_eq!(acks.oldest(later), Duration::from_secs(5));
}

#[test]
fn what_the_broker_does_not_repeat_was_acknowledged_and_has_no_age() {
    let mut acks = Acks::default();
    let number = admit(&mut acks, 1, false, 7);
    assert_eq!(packets(&acks.settled(number, 10)), [1]);
    // It left and reached the broker, but the link died before the client could say so.
    acks.severed();
    acks.connected(true);
    let later = Instant::now() + Duration::from_secs(60);
    assert_eq!(acks.oldest(later), Duration::ZERO);
}
