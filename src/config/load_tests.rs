//! Every mistake at once, each with its place; secrets kept out of messages.

use std::io::Write;

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn load_text(text: &str, environment: &[(&str, &str)]) -> (Result<Loaded, Problems>, String) {
    let file = file(text);
    let sources = Sources {
        files: vec![file.path().to_owned()],
        environment: environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    };
    (load(&sources), file.path().display().to_string())
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let (loaded, _) = load_text("", &[]);
    assert_eq!(loaded.unwrap().config, Config::default());
}

#[test]
fn all_mistakes_are_listed_at_once_with_file_key_and_expectation() {
    let (loaded, path) = load_text(
        r#"
        [mqtt]
        ulr = "mqtt://h"
        protocol = "4"
        keep_alive = 7
        connections = "many"
        [sink]
        writers = 0
        [[streams]]
        name = "a"
        codec = "xml"
        [[streams]]
        name = "b"
        nested = "flat"
        bogus = 1
        [nonsense]
        "#,
        &[("TIDEGATE_ADMIN__LISTEN", "nowhere")],
    );
    let problems = loaded.unwrap_err().0;
    let find = |key: &str| {
        problems
            .iter()
            .find(|p| p.key == key)
            .unwrap_or_else(|| panic!("{key} not in {problems:#?}"))
    };
    assert!(find("mqtt.ulr").message.contains("\"url\""));
    assert!(find("mqtt.protocol").message.contains("3.1.1"));
    assert!(find("mqtt.keep_alive").message.contains("unit"));
    assert!(find("mqtt.connections").message.contains("many"));
    assert!(find("streams.0.codec").message.contains("json"));
    assert!(find("streams.1.nested").message.contains("flatten"));
    assert!(find("streams.1.bogus").message.contains("known here"));
    assert!(find("nonsense").message.contains("unknown key"));
    assert!(find("sink.writers").message.contains("1 to 256"));
    assert_eq!(find("sink.writers").source.as_deref(), Some(path.as_str()));
    assert_eq!(
        find("admin.listen").source.as_deref(),
        Some("environment variable TIDEGATE_ADMIN__LISTEN")
    );
}

#[test]
fn environment_wins_over_files_and_is_read_by_the_type_of_its_key() {
    let (loaded, _) = load_text(
        "[mqtt]\nconnections = 2\nshare_group = 'a'\n",
        &[
            ("TIDEGATE_MQTT__PASSWORD", "007"),
            ("TIDEGATE_MQTT__USERNAME", "true"),
            ("TIDEGATE_MQTT__CONNECTIONS", "3"),
            ("TIDEGATE_PORT", "tcp://10.0.0.1:1883"),
            ("TIDEGATE_TYPO", "x"),
        ],
    );
    let loaded = loaded.unwrap();
    assert_eq!(
        loaded.config.mqtt.password.as_ref().unwrap().expose(),
        "007"
    );
    assert_eq!(loaded.config.mqtt.username.as_deref(), Some("true"));
    assert_eq!(loaded.config.mqtt.connections, 3);
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
}

#[test]
fn secrets_stay_out_of_messages() {
    let (loaded, _) = load_text(
        "[mqtt]\npassword = 8412\n[mongodb]\nuri = 'postgres://u:hunter2@h'",
        &[],
    );
    let text = loaded.unwrap_err().to_string();
    assert!(
        text.contains("mqtt.password") && text.contains("mongodb.uri"),
        "{text}"
    );
    assert!(
        !text.contains("8412") && !text.contains("hunter2"),
        "{text}"
    );
}

#[test]
fn missing_files_and_broken_syntax_name_file_and_line() {
    let sources = Sources {
        files: vec!["/nonexistent/a.toml".into()],
        environment: vec![],
    };
    let text = load(&sources).unwrap_err().to_string();
    assert!(
        text.contains("/nonexistent/a.toml") && text.contains("cannot be read"),
        "{text}"
    );
    let (loaded, path) = load_text("[mqtt]\nurl = \n", &[]);
    let text = loaded.unwrap_err().to_string();
    assert!(text.contains(&path) && text.contains("line 2"), "{text}");
}

#[test]
fn a_named_secret_file_must_exist() {
    let (loaded, _) = load_text(
        "[mqtt]\nusername = 'u'\npassword_file = '/nonexistent/secret'",
        &[],
    );
    let text = loaded.unwrap_err().to_string();
    assert!(
        text.contains("mqtt.password_file") && text.contains("/nonexistent/secret"),
        "{text}"
    );
}
