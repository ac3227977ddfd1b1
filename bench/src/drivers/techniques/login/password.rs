//! A password that is never sent: SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::{hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sealbus_seal::sha256;

use super::{Party, Reply};
use crate::drivers::techniques::NotBelieved;

/// Iterations, the least that RFC 7677 allows.
const ITERATIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4095);
/// The most iterations that a server may ask for.
const MOST_ITERATIONS: u32 = 1 << 20;
/// The longest words of either end.
const LONGEST: usize = 1024;
/// The beginning of the first words: no channel binding, no other name.
const HEADER: &str = "n,,";
/// The same, in base64.
const BINDING: &str = "biws";

type Hash = [u8; 32];

fn mac(key: &[u8], message: &str) -> Hash {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message.as_bytes());
    let mut hash = Hash::default();
    hash.copy_from_slice(tag.as_ref());
    hash
}

/// Both sides by XOR.
fn joined(mut left: Hash, right: Hash) -> Hash {
    for (byte, of_right) in left.iter_mut().zip(right) {
        *byte ^= of_right;
    }
    left
}

fn salted(password: &str, salt: &[u8], iterations: NonZeroU32) -> Hash {
    let mut key = Hash::default();
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut key);
    key
}

fn nonce() -> Result<String, NotBelieved> {
    let mut bytes = [0; 18];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(STANDARD.encode(bytes))
}

fn text(words: &[u8]) -> Result<&str, NotBelieved> {
    match str::from_utf8(words) {
        Ok(text) if text.len() <= LONGEST => Ok(text),
        _ => Err(NotBelieved(
            "the words of the login are too long, or no text",
        )),
    }
}

/// The values of attributes that must stand in this order, and nothing else.
fn values<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Result<[&'a str; N], NotBelieved> {
    let mut parts = text.split(',');
    let mut values = [""; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = (parts.next())
            .and_then(|part| part.strip_prefix(name)?.strip_prefix('='))
            .ok_or(NotBelieved("the words of the login have another form"))?;
    }
    match parts.next() {
        None => Ok(values),
        Some(_) => Err(NotBelieved("the words of the login have more parts")),
    }
}

/// The server's record of a password. Nobody can log in with it.
#[derive(Clone)]
struct Account {
    salt: [u8; 16],
    stored: Hash,
    server: Hash,
}

impl Account {
    fn new(password: &str, salt: [u8; 16]) -> Self {
        let salted = salted(password, &salt, ITERATIONS);
        Self {
            salt,
            stored: sha256(&[&mac(&salted, "Client Key")]),
            server: mac(&salted, "Server Key"),
        }
    }
}

/// The accounts of a server.
#[derive(Default)]
pub(crate) struct Accounts(HashMap<String, Account>);

impl Accounts {
    pub(crate) fn add(&mut self, name: String, password: &str) -> Result<(), NotBelieved> {
        let mut salt = [0; 16];
        SystemRandom::new().fill(&mut salt)?;
        self.0.insert(name, Account::new(password, salt));
        Ok(())
    }

    /// The end that answers.
    pub(crate) fn party(self: &Arc<Self>) -> Result<Box<dyn Party>, NotBelieved> {
        Ok(Box::new(Server {
            accounts: self.clone(),
            nonce: nonce()?,
            asked: None,
        }))
    }
}

struct Server {
    accounts: Arc<Accounts>,
    nonce: String,
    asked: Option<Asked>,
}

/// A login that has begun.
struct Asked {
    account: Account,
    /// The nonces of both ends.
    nonce: String,
    /// The first words of both ends.
    said: String,
}

impl Server {
    fn greet(&self, words: &str) -> Result<(Asked, String), NotBelieved> {
        let bare = words
            .strip_prefix(HEADER)
            .ok_or(NotBelieved("the login begins with other words"))?;
        let [name, theirs] = values(bare, ["n", "r"])?;
        let account = self.accounts.0.get(name).cloned();
        let account = account.ok_or(NotBelieved("nobody has this name"))?;
        let nonce = format!("{theirs}{}", self.nonce);
        let salt = STANDARD.encode(account.salt);
        let say = format!("r={nonce},s={salt},i={ITERATIONS}");
        let asked = Asked {
            account,
            nonce,
            said: format!("{bare},{say}"),
        };
        Ok((asked, say))
    }
}

impl Asked {
    /// Checks the proof, and returns the server's own.
    fn check(&self, words: &str) -> Result<String, NotBelieved> {
        let [binding, nonce, proof] = values(words, ["c", "r", "p"])?;
        if nonce != self.nonce || binding != BINDING {
            return Err(NotBelieved("the login goes on with other words"));
        }
        let said = format!("{},c={binding},r={nonce}", self.said);
        let proof = STANDARD.decode(proof).unwrap_or_default();
        let proof =
            Hash::try_from(proof).map_err(|_| NotBelieved("the proof has another length"))?;
        let key = joined(mac(&self.account.stored, &said), proof);
        verify_slices_are_equal(&sha256(&[&key]), &self.account.stored)
            .map_err(|_| NotBelieved("the password is wrong"))?;
        Ok(STANDARD.encode(mac(&self.account.server, &said)))
    }
}

impl Party for Server {
    fn begin(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn hear(&mut self, words: &[u8]) -> Result<Reply, NotBelieved> {
        let words = text(words)?;
        if let Some(asked) = self.asked.take() {
            let proof = asked.check(words)?;
            return Ok(Reply::last(format!("v={proof}").into_bytes()));
        }
        let (asked, say) = self.greet(words)?;
        self.asked = Some(asked);
        Ok(Reply::more(say.into_bytes()))
    }
}

/// The end that asks, with its password.
pub(crate) struct Password {
    name: String,
    password: String,
    nonce: String,
    /// The proof that the server must give.
    expected: Option<Hash>,
}

impl Password {
    pub(crate) fn new(name: String, password: String) -> Result<Self, NotBelieved> {
        Ok(Self {
            name,
            password,
            nonce: nonce()?,
            expected: None,
        })
    }

    fn bare(&self) -> String {
        format!("n={},r={}", self.name, self.nonce)
    }

    /// Answers the server's first words.
    fn prove(&mut self, words: &str) -> Result<String, NotBelieved> {
        let [nonce, salt, iterations] = values(words, ["r", "s", "i"])?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(NotBelieved("the server answers another login"));
        }
        let iterations = iterations.parse().ok().and_then(NonZeroU32::new);
        let iterations = iterations
            .filter(|it| (ITERATIONS.get()..=MOST_ITERATIONS).contains(&it.get()))
            .ok_or(NotBelieved(
                "the server asks for too few iterations, or too many",
            ))?;
        let salt = STANDARD
            .decode(salt)
            .map_err(|_| NotBelieved("the salt is no base64"))?;
        let salted = salted(&self.password, &salt, iterations);
        let going = format!("c={BINDING},r={nonce}");
        let said = format!("{},{words},{going}", self.bare());
        let key = mac(&salted, "Client Key");
        let proof = joined(key, mac(&sha256(&[&key]), &said));
        self.expected = Some(mac(&mac(&salted, "Server Key"), &said));
        Ok(format!("{going},p={}", STANDARD.encode(proof)))
    }
}

impl Party for Password {
    fn begin(&mut self) -> Option<Vec<u8>> {
        Some(format!("{HEADER}{}", self.bare()).into_bytes())
    }

    fn hear(&mut self, words: &[u8]) -> Result<Reply, NotBelieved> {
        let words = text(words)?;
        let Some(expected) = self.expected.take() else {
            return Ok(Reply::more(self.prove(words)?.into_bytes()));
        };
        let [proof] = values(words, ["v"])?;
        let proof = STANDARD.decode(proof).unwrap_or_default();
        match verify_slices_are_equal(&expected, &proof) {
            Ok(()) => Ok(Reply::done()),
            Err(_) => Err(NotBelieved("the server does not know the password")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{change_each_byte, talk};
    use super::*;

    fn pair(password: &str) -> (Box<dyn Party>, Box<dyn Party>) {
        let mut accounts = Accounts::default();
        accounts.add("agent-7".to_owned(), "pencil").unwrap();
        let asking = Password::new("agent-7".to_owned(), password.to_owned()).unwrap();
        (Box::new(asking), Arc::new(accounts).party().unwrap())
    }

    /// RFC 7677 section 3.
    #[test]
    fn the_example_of_the_standard_is_reproduced() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let account = Account::new("pencil", salt.try_into().unwrap());
        let mut server = Server {
            accounts: Arc::new(Accounts([("user".to_owned(), account)].into())),
            nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned(),
            asked: None,
        };
        let mut client = Password::new("user".to_owned(), "pencil".to_owned()).unwrap();
        client.nonce = "rOprNGfwEbeRWgbNEkqO".to_owned();
        let mut said = Vec::new();
        talk(&mut client, &mut server, |_, words| {
            said.push(String::from_utf8(words.clone()).unwrap());
        })
        .unwrap();
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(
            said,
            [
                "n,,n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned(),
                format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
                format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="),
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_owned(),
            ]
        );
    }

    #[test]
    fn a_wrong_password_is_refused() {
        let (mut asking, mut answering) = pair("pen");
        let result = talk(asking.as_mut(), answering.as_mut(), |_, _| {});
        assert_eq!(result, Err(NotBelieved("the password is wrong")));
    }

    #[test]
    fn a_server_without_the_password_is_refused() {
        let (mut asking, mut answering) = pair("pencil");
        let result = talk(asking.as_mut(), answering.as_mut(), |turn, words| {
            if turn == 3 {
                *words = format!("v={}", STANDARD.encode([7; 32])).into_bytes();
            }
        });
        let refused = NotBelieved("the server does not know the password");
        assert_eq!(result, Err(refused));
    }

    #[test]
    fn each_changed_byte_is_refused() {
        assert!(change_each_byte(|| pair("pencil")) > 200);
    }
}
