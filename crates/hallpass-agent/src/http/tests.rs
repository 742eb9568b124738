//! What is promised about the API, compared with the code.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::from_str(pages::OPENAPI).expect("the document is JSON")
}

/// Method, path and statuses of every route of the document.
fn documented() -> BTreeSet<(String, String, BTreeSet<u16>)> {
    let document = document();
    let mut all = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let statuses = operation["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap());
            all.insert((method.to_uppercase(), path.clone(), statuses.collect()));
        }
    }
    all
}

#[test]
fn the_document_has_every_route_with_its_statuses_and_no_other() {
    let served = ROUTES.iter().map(|route| {
        let statuses: BTreeSet<u16> = route.statuses.iter().chain(ANY_STATUS).copied().collect();
        (route.method.to_owned(), route.path.to_owned(), statuses)
    });
    assert_eq!(documented(), served.collect());
}

#[test]
fn the_routes_are_those_of_the_router() {
    // The list, the router and the document are written by hand: the router's own lines are read here, so that none is left out.
    let source = include_str!("mod.rs");
    let mut routed = BTreeSet::new();
    for line in source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
        let (path, handlers) = line.split_once("\", ").unwrap();
        for method in ["get", "post", "delete"] {
            if handlers.contains(&format!("{method}(")) {
                routed.insert((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    let listed: BTreeSet<_> = ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(routed, listed);
}

#[test]
fn every_path_of_the_document_declares_its_parameters_and_every_reference_leads_somewhere() {
    let document = document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let names: BTreeSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path");
            let declared: BTreeSet<&str> = in_path.map(|parameter| parameter["name"].as_str().unwrap()).collect();
            assert_eq!(names, declared, "{method} {path}");
            assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{method} {path}");
        }
    }
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some_and(Value::is_object), "{reference}");
    }
}
