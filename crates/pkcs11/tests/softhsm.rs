//! Keys in SoftHSM, a token in software (`make softhsm`). SoftHSM finds its settings by a variable of the environment, so each
//! test prepares a token and then runs its second half, of the same name, in a process of its own.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use cryptoki::context::Pkcs11;
use cryptoki::object::{Attribute, ObjectClass};
use sealbus_pkcs11::{KeyName, TokenKey, TokenKeyError};
use sealbus_seal::{KeyError, KeyHolder as _};

const PIN: &str = "2468";
/// Set in the second half of a test.
const FOLDER: &str = "SEALBUS_TEST_TOKEN";

fn library() -> PathBuf {
    let debian = Path::new("/usr/lib/softhsm/libsofthsm2.so");
    assert!(debian.exists(), "SoftHSM is missing: run `make softhsm`");
    debian.to_owned()
}

/// Runs the second half of a test beside a new token. Returns true in that half, with the token's folder.
fn beside_a_token(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("objects")).unwrap();
    let settings = format!("directories.tokendir = {}\n", at("objects").display());
    fs::write(at("softhsm2.conf"), settings).unwrap();
    let mut prepare = Command::new("softhsm2-util");
    prepare
        .args(["--init-token", "--free", "--label", "factory"])
        .args(["--pin", PIN, "--so-pin", "1357"]);
    let mut second = Command::new(std::env::current_exe().unwrap());
    second
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path());
    for command in [&mut prepare, &mut second] {
        let done = command.env("SOFTHSM2_CONF", at("softhsm2.conf")).output();
        let done = done.unwrap();
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    }
    None
}

fn write_pin(folder: &Path, pin: &str, written: SystemTime) {
    let path = folder.join("pin");
    fs::write(&path, format!("{pin}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(written).unwrap();
}

fn key(folder: &Path, label: &str) -> KeyName {
    let (library, pin) = (library(), folder.join("pin"));
    let (library, pin) = (library.display(), pin.display());
    format!("pkcs11:token=factory;object={label}?module-path={library}&pin-source={pin}")
        .parse()
        .unwrap()
}

#[test]
#[ignore = "needs SoftHSM"]
fn a_key_is_made_once_and_signs() {
    let Some(folder) = beside_a_token("a_key_is_made_once_and_signs") else {
        return;
    };
    write_pin(&folder, PIN, SystemTime::now());
    let name = key(&folder, "ca");
    assert!(matches!(
        TokenKey::open(&name),
        Err(TokenKeyError::NoKey(_))
    ));
    let made = TokenKey::open_or_make(&name).unwrap();
    let again = TokenKey::open_or_make(&name).unwrap();
    assert_eq!(made.public_key(), again.public_key());
    let other = TokenKey::open_or_make(&key(&folder, "root")).unwrap();
    assert_ne!(made.public_key(), other.public_key());
    let signature = again.sign(b"a message").unwrap();
    assert!(made.public_key().verifies(b"a message", &signature));
    assert!(!made.public_key().verifies(b"another", &signature));
    assert!(!other.public_key().verifies(b"a message", &signature));
}

#[test]
#[ignore = "needs SoftHSM"]
fn a_token_that_forgot_its_user_is_opened_again() {
    let Some(folder) = beside_a_token("a_token_that_forgot_its_user_is_opened_again") else {
        return;
    };
    let written = SystemTime::now();
    write_pin(&folder, PIN, written);
    let held = TokenKey::open_or_make(&key(&folder, "ca")).unwrap();
    let module = Pkcs11::new(library()).unwrap();
    let slots = module.get_slots_with_initialized_token().unwrap();
    // It holds for all sessions of a process.
    let forget = || module.open_rw_session(slots[0]).unwrap().logout().unwrap();
    forget();
    let signature = held.sign(b"a message").unwrap();
    assert!(held.public_key().verifies(b"a message", &signature));
    // While it cannot be opened it does not sign, and signs again after that.
    forget();
    write_pin(&folder, "9999", written + Duration::from_secs(1));
    assert!(matches!(
        held.sign(b"a message"),
        Err(KeyError::NotSigned(_))
    ));
    write_pin(&folder, PIN, written + Duration::from_secs(2));
    held.sign(b"a message").unwrap();
}

#[test]
#[ignore = "needs SoftHSM"]
fn a_refused_pin_is_not_tried_again() {
    let Some(folder) = beside_a_token("a_refused_pin_is_not_tried_again") else {
        return;
    };
    let written = SystemTime::now();
    write_pin(&folder, "9999", written);
    let open = || TokenKey::open_or_make(&key(&folder, "ca"));
    assert!(matches!(open(), Err(TokenKeyError::WrongPin(_))));
    // The right PIN would be taken if the file were read as a new one.
    write_pin(&folder, PIN, written);
    assert!(matches!(open(), Err(TokenKeyError::WrongPin(_))));
    write_pin(&folder, PIN, written + Duration::from_secs(1));
    open().unwrap();
}

#[test]
#[ignore = "needs SoftHSM"]
fn no_key_is_made_beside_one_half_of_another() {
    let Some(folder) = beside_a_token("no_key_is_made_beside_one_half_of_another") else {
        return;
    };
    write_pin(&folder, PIN, SystemTime::now());
    let held = ["ca", "root"].map(|label| TokenKey::open_or_make(&key(&folder, label)).unwrap());
    let module = Pkcs11::new(library()).unwrap();
    let slots = module.get_slots_with_initialized_token().unwrap();
    // The sessions of the keys have logged in for it, too.
    let session = module.open_rw_session(slots[0]).unwrap();
    let found = |label: &str, class| {
        let label = Attribute::Label(label.as_bytes().to_vec());
        session
            .find_objects(&[label, Attribute::Class(class)])
            .unwrap()
    };
    let halves = [
        ("ca", ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY),
        ("root", ObjectClass::PRIVATE_KEY, ObjectClass::PUBLIC_KEY),
    ];
    for (label, lost, left) in halves {
        session.destroy_object(found(label, lost)[0]).unwrap();
        let opened = TokenKey::open_or_make(&key(&folder, label));
        assert!(
            matches!(opened, Err(TokenKeyError::HalfKey(_))),
            "{opened:?}"
        );
        assert_eq!(found(label, left).len(), 1);
    }
    drop(held);
}
