//! stub
use tokio::sync::mpsc::UnboundedReceiver;
use crate::alert::Settled;
use super::Row;
use crate::config::ReceiverConfig;
use crate::store::Outbox;
use crate::telemetry::Registry;
#[derive(Clone)] pub struct DeliveryMetrics;
impl DeliveryMetrics { pub fn register(_: &Registry, _: &[&str]) -> Self { Self } }
pub struct Deliverer;
#[derive(Clone)] pub struct DelivererHandle;
impl Deliverer { pub fn new(_: Outbox, _: Vec<ReceiverConfig>, _: DeliveryMetrics) -> (Self, DelivererHandle, UnboundedReceiver<Settled>) { unimplemented!() }
 pub async fn run(self, _: tokio_util::sync::CancellationToken) -> Result<(), std::convert::Infallible> { Ok(()) } }
impl DelivererHandle { pub fn owner(&self) -> &str { "" } pub fn deliver(&self, _: Vec<Row>) {} pub fn recall(&self, _: String) {} pub fn configure(&self, _: Vec<ReceiverConfig>) {} pub fn oldest(&self) -> Option<std::time::Duration> { None } }
