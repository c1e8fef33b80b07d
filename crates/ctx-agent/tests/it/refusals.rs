//! Refusals of providers, in their own words, and which of our errors each of them is.

use std::time::Duration;

use ctx_agent::model::ModelError;
use serde_json::{Value, json};
use testkit::models::{ModelServer, Reply, Wire};

use crate::remote::{KEY, heard, models, request, setup, user};
use crate::support::Root;

/// The error of one call to a server that answers so.
async fn refused(wire: Wire, reply: Reply) -> ModelError {
    let (server, root) = (ModelServer::start(), Root::new());
    server.reply(reply);
    let (events, error) = heard(&models(&root, setup(&server, wire)), request(vec![user("hi")])).await;
    assert_eq!(events, [], "{wire:?}");
    error.unwrap()
}

#[tokio::test]
async fn every_refusal_has_its_code_and_reason() {
    let openai =
        |code: &str, message: &str| json!({ "error": { "code": code, "message": message, "type": "x" } });
    let anthropic =
        |kind: &str, message: &str| json!({ "type": "error", "error": { "type": kind, "message": message } });
    let gemini =
        |status: &str, message: &str| json!({ "error": { "code": 0, "message": message, "status": status } });
    let google_quota = |quota: &str| {
        let message = "You exceeded your current quota, please check your plan and billing details.";
        let details = json!([{ "violations": [{ "quotaId": quota }] }, { "retryDelay": "37s" }]);
        json!({ "error": { "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details } })
    };
    let key_quoted = format!("Incorrect API key provided: {KEY}");
    let table: Vec<(Wire, u16, Value, &str, &str)> = vec![
        (Wire::Chat, 401, openai("invalid_api_key", &key_quoted), "EKEYREJECTED", "key_rejected"),
        (
            Wire::Messages,
            401,
            anthropic("authentication_error", "invalid x-api-key"),
            "EKEYREJECTED",
            "key_rejected",
        ),
        (
            Wire::Gemini,
            400,
            gemini("INVALID_ARGUMENT", "API key not valid. Pass a valid key"),
            "EKEYREJECTED",
            "key_rejected",
        ),
        (
            Wire::Responses,
            404,
            openai("model_not_found", "The model `x` does not exist"),
            "ENOENT",
            "no_such_model",
        ),
        (
            Wire::Messages,
            404,
            anthropic("not_found_error", "model: claude-x not_found"),
            "ENOENT",
            "no_such_model",
        ),
        (
            Wire::Gemini,
            404,
            gemini("NOT_FOUND", "models/x is not found for API version v1beta"),
            "ENOENT",
            "no_such_model",
        ),
        (
            Wire::Chat,
            404,
            json!({ "error": "model \"x\" not found, try pulling it first" }),
            "ENOENT",
            "no_such_model",
        ),
        (
            Wire::Responses,
            429,
            openai("insufficient_quota", "You exceeded your current quota"),
            "EDQUOT",
            "no_quota",
        ),
        (
            Wire::Messages,
            400,
            anthropic("invalid_request_error", "Your credit balance is too low"),
            "EDQUOT",
            "no_quota",
        ),
        (Wire::Chat, 429, openai("rate_limit_exceeded", "slow down"), "EAGAIN", "rate_limit"),
        (
            Wire::Gemini,
            429,
            gemini("RESOURCE_EXHAUSTED", "Quota of requests exceeded"),
            "EAGAIN",
            "rate_limit",
        ),
        // Google says it in the same words at a limit by the minute and by the day; only the first one passes.
        (Wire::Gemini, 429, google_quota("GenerateRequestsPerMinutePerProject"), "EAGAIN", "rate_limit"),
        (Wire::Gemini, 429, google_quota("GenerateRequestsPerDayPerProject"), "EDQUOT", "no_quota"),
        (
            Wire::Chat,
            403,
            openai("unsupported_country", "Country not supported"),
            "EKEYREJECTED",
            "key_rejected",
        ),
        (Wire::Messages, 529, anthropic("overloaded_error", "Overloaded"), "EHOSTDOWN", "overloaded"),
        (Wire::Chat, 500, openai("", "The server had an error"), "EHOSTDOWN", "server_error"),
        (
            Wire::Chat,
            400,
            openai("context_length_exceeded", "maximum context length is 8192 tokens"),
            "EOVERFLOW",
            "overflow",
        ),
        (
            Wire::Messages,
            400,
            anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000"),
            "EOVERFLOW",
            "overflow",
        ),
        (Wire::Messages, 413, anthropic("request_too_large", "too large"), "EOVERFLOW", "overflow"),
        (
            Wire::Gemini,
            400,
            gemini(
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens allowed (8)",
            ),
            "EOVERFLOW",
            "overflow",
        ),
        (Wire::Chat, 400, openai("", "unknown parameter"), "EINVAL", "bad_request"),
    ];
    for (wire, status, body, code, reason) in table {
        let error = refused(wire, Reply::raw(status, "application/json", &body.to_string())).await;
        assert_eq!(
            (error.code().name(), error.reason()),
            (code, reason),
            "{wire:?} {status} {body}: {error}"
        );
        assert!(!error.to_string().contains(KEY), "{error}");
        assert!(status != 403 || error.to_string().contains("Country not supported"), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_the_protocol_is_said_so() {
    let page = "<html><body>Sign in to the proxy</body></html>";
    for (reply, words) in [
        (Reply::raw(200, "text/html", page), "a web page"),
        (Reply::raw(404, "text/html; charset=utf-8", page), "a web page"),
        (Reply::raw(403, "Text/HTML", page), "a web page"),
        (Reply::raw(407, "text/html", page), "a web page"),
        (Reply::raw(302, "text/html", "").header("location", "https://elsewhere.invalid/"), "status 302"),
        (Reply::raw(200, "application/json", "{\"id\":1}"), "application/json"),
        (Reply::raw(200, "text/event-stream", "data: {not json\n\n"), "not JSON"),
    ] {
        let error = refused(Wire::Chat, reply).await;
        assert_eq!((error.code().name(), error.reason()), ("EPROTO", "not_protocol"), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    for status in [502, 503] {
        let error = refused(Wire::Messages, Reply::raw(status, "text/html", page)).await;
        assert_eq!(error.code().name(), "EHOSTDOWN", "{error}");
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_is_the_same_error() {
    let event =
        |data: Value| Reply::raw(200, "text/event-stream", &format!("event: error\ndata: {data}\n\n"));
    let overflow = json!({ "error": { "code": "context_length_exceeded", "message": "too long" } });
    assert_eq!(refused(Wire::Chat, event(overflow)).await.reason(), "overflow");
    let overloaded =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    assert_eq!(refused(Wire::Messages, event(overloaded)).await.reason(), "overloaded");
    let failed = json!({
        "type": "response.failed",
        "response": { "error": { "code": "rate_limit_exceeded", "message": "slow down" } },
    });
    assert_eq!(refused(Wire::Responses, event(failed)).await.reason(), "rate_limit");
    let refusal = json!({ "type": "message_delta", "delta": { "stop_reason": "refusal" } });
    assert_eq!(refused(Wire::Messages, event(refusal)).await.code().name(), "EPERM");
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } });
    assert_eq!(refused(Wire::Gemini, event(blocked)).await.code().name(), "EPERM");
    let filtered = json!({ "choices": [{ "delta": {}, "finish_reason": "content_filter" }] });
    assert_eq!(refused(Wire::Chat, event(filtered)).await.code().name(), "EPERM");
}

#[tokio::test]
async fn the_wait_that_a_provider_asks_for_is_known() {
    let body = "{\"error\":{\"message\":\"slow down\"}}";
    let by_header = Reply::raw(429, "application/json", body).header("retry-after", "7");
    let ModelError::RateLimit { retry_after, .. } = refused(Wire::Chat, by_header).await else { panic!() };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    let body = json!({ "error": { "message": "wait", "details": [{ "retryDelay": "3s" }] } });
    let by_body = Reply::raw(429, "application/json", &body.to_string());
    let ModelError::RateLimit { retry_after, .. } = refused(Wire::Gemini, by_body).await else { panic!() };
    assert_eq!(retry_after, Some(Duration::from_secs(3)));
}
