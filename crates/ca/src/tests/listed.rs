//! The certificates, page by page.

use super::*;

#[test]
fn pages_of_certificates_are_in_the_order_of_issue_and_miss_none() {
    let mut service = service(&root());
    let node = node(&mut service);
    for number in 0..10 {
        let at = NOW.plus(Duration::from_secs(number / 4));
        certified_at(&mut service, &node, &number.to_string(), at).unwrap();
    }
    let whole = service
        .certificates(true, None, &Page::default(), NOW)
        .unwrap();
    assert_eq!((whole.certificates.len(), whole.end), (11, None));
    let indices: Vec<u64> = whole.certificates.iter().map(|it| it.index).collect();
    assert!(indices.is_sorted());
    for limit in 1..13 {
        let mut page = Page {
            after: None,
            limit: Some(limit),
        };
        let mut found = Vec::new();
        loop {
            let part = service.certificates(true, None, &page, NOW).unwrap();
            assert!(part.certificates.len() <= limit as usize);
            found.extend(part.certificates);
            match part.end {
                Some(end) => page.after = Some(end),
                None => break,
            }
        }
        assert_eq!(found, whole.certificates);
    }
    let of_node = service.certificates(true, Some("node-1"), &Page::default(), NOW);
    assert_eq!(of_node.unwrap().certificates, whole.certificates[..1]);
    for after in ["", "x", "1/ca", "1/ca/x"] {
        let page = Page {
            after: Some(after.to_owned()),
            limit: None,
        };
        let fault = service.certificates(true, None, &page, NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::BadRequest);
    }
}
