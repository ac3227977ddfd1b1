//! Sealed messages: their form, and how changes to them are found.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use sealbus_bus::{
    LONGEST_ROW, NotOpened, Opened, OpenedRow, OpenedRows, Provenance, ReceivedMessage,
    SHORT_OVERHEAD, SealedMessage, SealedRow, SentRows, SessionNumber, WHOLE_OVERHEAD,
    aid_of as aid, is_sealed, level_of,
};
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, Content, Expression, Limits, Performative};
use sealbus_proof::{Blob, EvidenceLine, MessageLine, disclose, write_file};
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::{Commitment, EncryptionKey};

static KEY: LazyLock<Arc<EncryptionKey>> =
    LazyLock::new(|| Arc::new(EncryptionKey::generate().unwrap()));
/// A fixed time, for tests in which no time passes.
static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

const ANN: &str = "ann@factory";
const BEN: &str = "ben@factory";
const CLEO: &str = "cleo@factory";

fn said(content: &str) -> AclMessage {
    AclMessage::new(Performative::Propose)
        .with_sender(aid(ANN))
        .with_receivers([aid(BEN), aid(CLEO)])
        .with_protocol("fipa-contract-net")
        .with_content(content)
        .with_user_defined("X-Trace", "secret-trace")
}

fn row() -> SealedRow {
    SealedRow::begin(KEY.public(), ANN, BEN, *NOW).unwrap()
}

/// The messages of a row: the first contains the secret, and the others name the row.
fn row_of<const N: usize>(row: &mut SealedRow, contents: [&str; N]) -> [Bytes; N] {
    contents.map(|content| {
        let sealed = row.seal(&said(content)).unwrap();
        sealed.went_over(SessionNumber::next());
        sealed.bytes().clone()
    })
}

fn opens(
    rows: &mut OpenedRows,
    key: &Arc<EncryptionKey>,
    outer: &[u8],
    receiver: &str,
) -> Result<Opened, NotOpened> {
    let outer = EncodedMessage::new(outer, &Limits::default()).unwrap();
    rows.open(&outer.message(), receiver, *NOW, |id| {
        let is_it = id == key.public().id();
        is_it
            .then(|| key.clone())
            .ok_or_else(|| "no such key".to_owned())
    })
}

/// Opens a message in a process that knows no row.
fn opened_by(key: &Arc<EncryptionKey>, outer: &[u8], receiver: &str) -> Result<Opened, NotOpened> {
    opens(&mut OpenedRows::default(), key, outer, receiver)
}

fn opened(outer: &[u8]) -> Result<AclMessage, NotOpened> {
    Ok(opened_by(&KEY, outer, BEN)?.message.message().to_owned())
}

/// Opens a message in Ben's process, which knows these rows.
fn read(rows: &mut OpenedRows, outer: &[u8]) -> Result<AclMessage, NotOpened> {
    Ok(opens(rows, &KEY, outer, BEN)?.message.message().to_owned())
}

fn decoded(outer: &[u8]) -> AclMessage {
    let outer = bitefficient::decode_ref(outer, &Limits::default());
    outer.unwrap().to_owned()
}

fn is_short(sealed: &SealedMessage) -> bool {
    sealed.bytes() != &sealed.whole().unwrap()
}

fn encoded(message: &AclMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_receiver_has_the_words_for_others() {
    let mut rows = OpenedRows::default();
    let messages = row_of(&mut row(), ["the price is 6", "the price is 7"]);
    let shown = messages.clone().map(|outer| {
        let opened = opens(&mut rows, &KEY, &outer, BEN).unwrap();
        let received = ReceivedMessage::from_bytes(outer, Provenance::Claimed).unwrap();
        assert!(received.words().is_none());
        let received = received.opened(Some(opened));
        let (salt, inside) = received.committed().unwrap();
        let commitment = Commitment::new(salt, inside);
        let words = received.words().unwrap().to_string();
        (commitment, words.parse().unwrap())
    });
    // Each message has a salt of its own.
    assert_ne!(shown[0].0, shown[1].0);
    let line = |message: &Bytes| {
        EvidenceLine::Message(MessageLine {
            certificate: 0,
            channel: None,
            qos: String::new(),
            receivers: vec![BEN.to_owned()],
            message: Blob(message.to_vec()),
            proof: Blob(Vec::new()),
        })
    };
    let [another] = row_of(&mut row(), ["the price is 7"]);
    let [whole, short] = &messages;
    for (number, (_, words)) in shown.iter().enumerate() {
        let file = write_file(&[line(&another), line(whole), line(short)]).unwrap();
        let disclosed = disclose(&file, std::slice::from_ref(words)).unwrap();
        let disclosed = String::from_utf8(disclosed).unwrap();
        let line_of_it = format!(r#"{{"disclosed":{{"message":{},"#, number + 1);
        assert!(disclosed.contains(&line_of_it), "{disclosed}");
        let file = write_file(&[line(&another)]).unwrap();
        assert!(disclose(&file, std::slice::from_ref(words)).is_err());
    }
}

#[test]
fn only_what_leads_a_message_to_its_receiver_shows() {
    let mut message = said("the price is 7");
    message.conversation_id = Some("order-17".into());
    message.reply_with = Some("r1".into());
    message.in_reply_to = Some("secret-reply".into());
    let mut row = row();
    let first = row.seal(&message).unwrap();
    first.went_over(SessionNumber::next());
    let second = row.seal(&message).unwrap();
    assert!(!is_short(&first) && is_short(&second));
    for (sealed, overhead) in [(&first, WHOLE_OVERHEAD), (&second, SHORT_OVERHEAD)] {
        let outer = decoded(sealed.bytes());
        assert_eq!(opened(&sealed.whole().unwrap()).unwrap(), message);
        assert_eq!(outer.sender, message.sender);
        assert_eq!(outer.receivers, message.receivers);
        assert_eq!(outer.conversation_id, message.conversation_id);
        assert_eq!(outer.reply_with, message.reply_with);
        assert!(is_sealed(&outer.view()));
        assert_eq!(level_of(&outer.view()), Ok(Some(SecurityLevel::Sealed)));
        let seen = sealed.bytes();
        for hidden in [
            "the price",
            "propose",
            "contract-net",
            "secret-trace",
            "secret-reply",
        ] {
            let found = seen.windows(hidden.len()).any(|at| at == hidden.as_bytes());
            assert!(!found, "{hidden}");
        }
        // Nothing that is visible outside is repeated inside.
        let shown = AclMessage {
            content: None,
            ..outer.clone()
        };
        let all_else = encoded(&message).len() - (encoded(&shown).len() - OF_OUTER);
        let content = outer.content_bytes().unwrap().len();
        assert_eq!(content, all_else + overhead - 2);
    }
}

#[test]
fn sealing_adds_few_bytes_to_a_message() {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(aid(ANN))
        .with_receiver(aid(BEN))
        .with_content(&[b'7'; 64][..]);
    let mut row = row();
    let added = [(); 2].map(|()| {
        let sealed = row.seal(&message).unwrap();
        sealed.went_over(SessionNumber::next());
        sealed.bytes().len() - encoded(&message).len()
    });
    assert_eq!(added, [1203, 74]);
}

/// The bytes of a message without parameters: the beginning, the act `sealed`, and the end.
const OF_OUTER: usize = 2 + 9 + 1;

#[test]
fn the_messages_of_a_row_open_in_any_order_with_one_secret() {
    let outers = row_of(&mut row(), ["0", "1", "2"]);
    let mut rows = OpenedRows::default();
    for number in [0, 2, 0, 1, 1] {
        let found = read(&mut rows, &outers[number]).unwrap();
        assert_eq!(found, said(&number.to_string()));
    }
    assert_eq!(rows.count(), 1);
}

#[test]
fn a_message_without_its_secret_waits_for_nothing_and_opens_where_the_secret_is() {
    let mut sent = SentRows::default();
    let mut own = row();
    let [first, second] = row_of(&mut own, ["0", "1"]);
    let unknown = opened(&second).unwrap_err();
    assert_eq!(unknown, NotOpened::UnknownRow);
    // The message comes back to its sender.
    assert!(sent.whole(second.clone()).is_err());
    sent.note(&own);
    let whole = sent.whole(second).unwrap();
    assert_eq!(opened(&whole).unwrap(), said("1"));
    // A message that contains its secret, or is not sealed, stays unchanged.
    for other in [first, encoded(&said("plain")).into(), Bytes::new()] {
        assert_eq!(sent.whole(other.clone()).unwrap(), other);
    }
    sent.forget(*NOW + Duration::from_secs(3599));
    assert!(sent.whole(whole.clone()).is_ok());
    let [third] = row_of(&mut own, ["2"]);
    assert!(sent.whole(third.clone()).is_ok());
    sent.forget(*NOW + Duration::from_secs(3600));
    assert!(sent.whole(third).is_err());
}

#[test]
fn a_row_ends_and_its_receiver_forgets_it_later() {
    let mut row = row();
    let [first, second] = row_of(&mut row, ["0", "1"]);
    assert!(!row.is_over(*NOW + LONGEST_ROW.1));
    assert!(row.is_over(*NOW + LONGEST_ROW.1 + Duration::from_secs(1)));
    let mut rows = OpenedRows::default();
    read(&mut rows, &first).unwrap();
    rows.forget(*NOW + LONGEST_ROW.1 + Duration::from_secs(599));
    assert!(read(&mut rows, &second).is_ok());
    rows.forget(*NOW + LONGEST_ROW.1 + Duration::from_secs(600));
    assert_eq!(read(&mut rows, &second), Err(NotOpened::UnknownRow));
    assert_eq!(rows.count(), 0);
}

#[test]
fn a_row_moves_with_its_receiver_and_is_good_for_no_other() {
    let [first, second] = row_of(&mut row(), ["0", "1"]);
    let mut rows = OpenedRows::default();
    let whole = opens(&mut rows, &KEY, &first, BEN).unwrap();
    assert!(whole.row.is_none());
    let unread = opens(&mut rows, &KEY, &second, BEN).unwrap().row.unwrap();
    let mut bytes = Vec::new();
    unread.encode(&mut bytes);
    for (agent, is_good) in [(BEN, true), (CLEO, false)] {
        let (row, rest) = OpenedRow::decode(&bytes, agent).unwrap();
        assert!(rest.is_empty());
        let mut elsewhere = OpenedRows::default();
        elsewhere.keep(row, *NOW);
        assert_eq!(opens(&mut elsewhere, &KEY, &second, agent).is_ok(), is_good);
    }
    for length in 0..bytes.len() {
        assert!(OpenedRow::decode(&bytes[..length], BEN).is_none());
    }
}

#[test]
fn a_sealed_message_is_good_for_one_receiver_and_of_one_sender() {
    let messages = row_of(&mut row(), ["the price is 6", "the price is 7"]);
    let other = Arc::new(EncryptionKey::generate().unwrap());
    let [first, _] = &messages;
    assert!(opened_by(&KEY, first, CLEO).is_err());
    assert!(opened_by(&other, first, BEN).is_err());
    for outer in &messages {
        let mut rows = OpenedRows::default();
        read(&mut rows, first).unwrap();
        assert!(opens(&mut rows, &KEY, outer, CLEO).is_err());
        let changes: [fn(&mut AclMessage); 6] = [
            |it| it.sender = Some(aid("mallory@factory")),
            |it| it.receivers = vec![aid(BEN)],
            |it| it.conversation_id = Some("another".into()),
            |it| it.reply_with = Some("another".into()),
            |it| it.protocol = Some("fipa-request".into()),
            |it| it.user_defined.push(("X-More".to_owned(), "more".into())),
        ];
        for change in changes {
            let mut changed = decoded(outer);
            change(&mut changed);
            assert!(read(&mut rows, &encoded(&changed)).is_err(), "{changed:?}");
        }
        let unnamed = AclMessage {
            sender: None,
            ..decoded(outer)
        };
        let why = read(&mut rows, &encoded(&unnamed)).unwrap_err();
        assert!(why.to_string().ends_with("it names no sender"), "{why}");
        assert!(read(&mut rows, outer).is_ok());
    }
}

/// Mallory knows all that travels, and has keys of her own.
#[test]
fn a_hostile_agent_uses_no_row_of_another_one() {
    let [first, second] = row_of(&mut row(), ["the price is 6", "the price is 7"]);
    let mut rows = OpenedRows::default();
    read(&mut rows, &first).unwrap();
    // Ann's messages under Mallory's name, with the secret and without it.
    let as_mallorys = |outer: &Bytes| {
        let mut changed = decoded(outer);
        changed.sender = Some(aid("mallory@factory"));
        encoded(&changed)
    };
    assert!(matches!(
        read(&mut rows, &as_mallorys(&first)),
        Err(NotOpened::Refused(_))
    ));
    assert_eq!(
        read(&mut rows, &as_mallorys(&second)),
        Err(NotOpened::UnknownRow)
    );
    // A row of Mallory's own, to Cleo in the same process, used for Ben.
    let mut own = SealedRow::begin(KEY.public(), "mallory@factory", CLEO, *NOW).unwrap();
    let hers = |content| said(content).with_sender(aid("mallory@factory"));
    let to_cleo = own.seal(&hers("to cleo")).unwrap();
    to_cleo.went_over(SessionNumber::next());
    opens(&mut rows, &KEY, to_cleo.bytes(), CLEO).unwrap();
    let again = own.seal(&hers("again")).unwrap();
    assert_eq!(read(&mut rows, again.bytes()), Err(NotOpened::UnknownRow));
    // With another number it does not open either.
    let mut renumbered = decoded(&second);
    let Some(Content::Bytes(content)) = &mut renumbered.content else {
        panic!("a sealed message has content of bytes")
    };
    content[1 + 8 + 3] ^= 2;
    assert!(read(&mut rows, &encoded(&renumbered)).is_err());
    assert_eq!(read(&mut rows, &second).unwrap(), said("the price is 7"));
}

#[test]
fn rows_of_one_agent_push_out_none_of_another() {
    let [first, second] = row_of(&mut row(), ["0", "1"]);
    let mut rows = OpenedRows::default();
    read(&mut rows, &first).unwrap();
    let mut bytes = Vec::new();
    let opened = opens(&mut rows, &KEY, &second, BEN).unwrap();
    opened.row.unwrap().encode(&mut bytes);
    // Each of these stands for a secret that a hostile agent has agreed on: the bytes of a moving row, under other names.
    let name = bytes.len() - ANN.len();
    bytes.splice(name.., *b"mal@factory");
    for number in 0..100_000_u64 {
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        rows.keep(OpenedRow::decode(&bytes, BEN).unwrap().0, *NOW);
        assert!(rows.count() <= 4097);
    }
    assert!(read(&mut rows, &second).is_ok());
    // Many hostile agents together.
    for number in 0..100_000_u64 {
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[name..name + 3].copy_from_slice(format!("m{:02}", number % 37).as_bytes());
        rows.keep(OpenedRow::decode(&bytes, BEN).unwrap().0, *NOW);
        assert!(rows.count() <= 32_768);
    }
    assert!(read(&mut rows, &second).is_ok());
}

fn expressions() -> impl Strategy<Value = Option<Expression>> {
    proptest::option::of("[a-z0-9 \"é-]{0,20}".prop_map(Expression::from))
}

proptest! {
    #[test]
    fn what_is_sealed_opens_as_it_was(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        conversation in expressions(),
        reply_with in expressions(),
        in_reply_to in expressions(),
    ) {
        let message = AclMessage {
            conversation_id: conversation,
            reply_with,
            in_reply_to,
            content: Some(Content::Bytes(content)),
            ..said("")
        };
        let mut row = row();
        let mut rows = OpenedRows::default();
        for _ in 0..2 {
            let outer = row.seal(&message).unwrap();
            outer.went_over(SessionNumber::next());
            let found = read(&mut rows, outer.bytes()).unwrap();
            prop_assert_eq!(encoded(&found), encoded(&message));
            let found = read(&mut rows, &outer.whole().unwrap()).unwrap();
            prop_assert_eq!(encoded(&found), encoded(&message));
        }
    }

    #[test]
    fn a_changed_bit_anywhere_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut rows = OpenedRows::default();
        for outer in row_of(&mut row(), ["the price is 6", "the price is 7"]) {
            let mut bytes = outer.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(changed) = bitefficient::decode_ref(&bytes, &Limits::default()) {
                // A message that no longer says that it is sealed is not proved by its author.
                if is_sealed(&changed) {
                    prop_assert!(opened(&bytes).is_err(), "{:?}", changed);
                    prop_assert!(read(&mut rows, &bytes).is_err(), "{:?}", changed);
                }
            }
            prop_assert!(read(&mut rows, &outer).is_ok());
        }
    }

    #[test]
    fn any_content_is_an_error_at_worst(content in prop::collection::vec(any::<u8>(), 0..1400), plain in 0..1300_usize) {
        let [mut whole, mut short] = row_of(&mut row(), ["0", "1"]).map(|it| decoded(&it));
        let mut rows = OpenedRows::default();
        for outer in [&mut whole, &mut short] {
            for content in [content.clone(), vec![1; plain], vec![3; plain], vec![4; plain]] {
                outer.content = Some(Content::Bytes(content));
                prop_assert!(read(&mut rows, &encoded(outer)).is_err());
            }
        }
    }

    #[test]
    fn any_row_of_a_former_process_is_an_error_at_worst(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some((row, rest)) = OpenedRow::decode(&bytes, BEN) {
            let mut again = Vec::new();
            row.encode(&mut again);
            prop_assert_eq!([&again, rest].concat(), bytes);
        }
    }
}
