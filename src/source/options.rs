//! From `[mqtt]` to what a connection attempt needs: pure, but for reading secrets and
//! certificates, which are read again at every attempt so that a renewed one is taken up.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::secret::value_or_file;
use crate::config::{BrokerAddress, MqttConfig, Secret};

/// The largest packet MQTT allows: fixed header, remaining length 268,435,455. Taken as the
/// client's limit because anything lower turns one big message into an endless reconnect.
pub const MAX_PACKET_BYTES: u32 = 268_435_460;

/// Why a connection cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A secret.
    #[error("{0}")]
    Secret(String),
    /// A certificate or key file.
    #[error("{path}: {message}")]
    File {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// The system's authorities, or a pair that does not fit.
    #[error("{0}")]
    Setup(String),
}

impl TlsError {
    /// The key to look at.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Secret(_) => "mqtt.password_file",
            Self::File { key, .. } => key,
            Self::Setup(_) => "mqtt.tls",
        }
    }
}

/// What is fixed for the life of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// Its number, from 0.
    pub index: usize,
    /// Stable and unique to this connection.
    pub client_id: String,
    /// The broker.
    pub broker: BrokerAddress,
    /// The section it came from.
    pub config: MqttConfig,
    /// Whether the broker forgets the session with the connection.
    pub clean: bool,
}

/// What one attempt needs beside.
pub struct Attempt {
    /// User name and password.
    pub credentials: Option<(String, String)>,
    /// Set where the url says `mqtts`.
    pub tls: Option<Arc<ClientConfig>>,
}

/// The options of connection `index`. The url has been validated.
///
/// # Errors
/// Where secrets or certificates cannot be read now.
pub fn connection(config: &MqttConfig, index: usize) -> Result<ConnectionOptions, TlsError> {
    let broker = BrokerAddress::parse(&config.url).map_err(TlsError::Setup)?;
    let client_id = match config.connections {
        1 => config.client_id.clone(),
        _ => format!("{}-{index}", config.client_id),
    };
    let options = ConnectionOptions {
        index,
        client_id,
        broker,
        config: config.clone(),
        clean: false,
    };
    options.attempt()?;
    Ok(options)
}

/// The options of the connection that canaries are published on.
///
/// # Errors
/// Where secrets or certificates cannot be read now.
pub fn canary(config: &MqttConfig) -> Result<ConnectionOptions, TlsError> {
    Ok(ConnectionOptions {
        client_id: format!("{}-canary", config.client_id),
        clean: true,
        ..connection(config, 0)?
    })
}

impl ConnectionOptions {
    /// Reads secrets and certificates, off the threads that move messages.
    ///
    /// # Errors
    /// A sentence, where that fails.
    pub async fn attempt_aside(&self) -> Result<Attempt, String> {
        let options = self.clone();
        match tokio::task::spawn_blocking(move || options.attempt()).await {
            Ok(attempt) => attempt.map_err(|error| format!("{}: {error}", error.key())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads secrets and certificates.
    ///
    /// # Errors
    /// Where that fails.
    pub fn attempt(&self) -> Result<Attempt, TlsError> {
        let config = &self.config;
        let password =
            value_or_file(&config.password, &config.password_file).map_err(TlsError::Secret)?;
        let credentials = config.username.as_ref().map(|user| {
            let password = password.as_ref().map_or("", Secret::expose);
            (user.clone(), password.to_owned())
        });
        let tls = if self.broker.tls {
            Some(Arc::new(tls(config)?))
        } else {
            None
        };
        Ok(Attempt { credentials, tls })
    }
}

fn tls(config: &MqttConfig) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    match &config.tls.ca_file {
        Some(path) => {
            for certificate in certificates("mqtt.tls.ca_file", path)? {
                roots
                    .add(certificate)
                    .map_err(|error| file("mqtt.tls.ca_file", path, error))?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(native.certs);
            if added == 0 {
                return Err(TlsError::Setup("the system has no certificate authorities; install ca-certificates or set mqtt.tls.ca_file".into()));
            }
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match (&config.tls.cert_file, &config.tls.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates("mqtt.tls.cert_file", cert)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| file("mqtt.tls.key_file", key, error))?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| {
                    TlsError::Setup(format!("certificate and key do not fit: {error}"))
                })
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file(key, path, error))?;
    let chain: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| file(key, path, error))?;
    if chain.is_empty() {
        return Err(file(key, path, "holds no PEM certificate"));
    }
    Ok(chain)
}

fn file(key: &'static str, path: &Path, error: impl std::fmt::Display) -> TlsError {
    TlsError::File {
        key,
        path: path.display().to_string(),
        message: error.to_string(),
    }
}
