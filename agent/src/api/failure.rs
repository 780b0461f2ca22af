//! Errors of the API as JSON: `{"reason", "field", "detail"}`, whatever went wrong.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use groundswell_core::documents::rejection::{Reason, Rejection};
use serde::{Deserialize, Serialize};

use crate::handle::{Gone, PublishError};

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureBody {
    /// A reason code of a refused document, or `bad-request`, `not-found`, `busy`, `stopping`, `fault`, `digest`, `range`.
    pub reason: String,
    /// What it is about.
    pub field: String,
    /// What is wrong and the way out.
    pub detail: String,
}

/// A status code with its body.
#[derive(Debug)]
pub(super) struct Failure(StatusCode, FailureBody);

impl Failure {
    pub(super) fn new(status: StatusCode, reason: &str, field: &str, detail: impl Into<String>) -> Self {
        Self(status, FailureBody { reason: reason.to_owned(), field: field.to_owned(), detail: detail.into() })
    }

    pub(super) fn bad_request(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", field, detail)
    }

    pub(super) fn not_found(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", field, detail)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

impl From<Gone> for Failure {
    fn from(gone: Gone) -> Self {
        let reason = match gone {
            Gone::Busy => "busy",
            Gone::Stopped => "stopping",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, "agent", gone.to_string())
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        let status = match rejection.reason {
            Reason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::Conflict => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, rejection.reason.code(), &rejection.field, rejection.detail)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Rejected(rejection) => rejection.into(),
            PublishError::Gone(gone) => gone.into(),
            PublishError::Fault(detail) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "fault", "store", detail),
        }
    }
}
