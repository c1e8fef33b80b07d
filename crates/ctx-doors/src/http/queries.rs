//! Queries of routes that take none: what is in them is refused, as the routes that take one refuse what they do not know.
//! Which routes these are is in the handlers' own descriptions, so that a new route needs nothing here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

use super::extract::{Asked, Nothing};

/// The methods that take no query, for each path that has such.
#[derive(Debug, Clone)]
pub(super) struct Without(Arc<HashMap<String, HashSet<Method>>>);

impl Without {
    pub fn of(document: &OpenApi) -> Without {
        let paths = document.paths.paths.iter();
        Without(Arc::new(paths.map(|(path, item)| (path.clone(), without_query(item))).collect()))
    }

    fn has(&self, path: &str, method: &Method) -> bool {
        // What only wants to know of an answer asks as the one who reads it.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.0.get(path).is_some_and(|methods| methods.contains(method))
    }
}

fn without_query(item: &PathItem) -> HashSet<Method> {
    let operations = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::PATCH, &item.patch),
        (Method::DELETE, &item.delete),
    ];
    let takes_none = |operation: &Option<Operation>| operation.as_ref().is_some_and(|it| !takes_query(it));
    operations.into_iter().filter(|(_, operation)| takes_none(operation)).map(|(method, _)| method).collect()
}

fn takes_query(operation: &Operation) -> bool {
    let is_asked = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        // Described elsewhere: the handler itself knows.
        RefOr::Ref(_) => true,
    };
    operation.parameters.iter().flatten().any(is_asked)
}

/// Refuses a query where the route takes none.
pub(super) async fn refuse_unknown(State(without): State<Without>, request: Request, next: Next) -> Response {
    // Most requests have none at all.
    let path = request.uri().query().and_then(|_| request.extensions().get::<MatchedPath>());
    if path.is_some_and(|path| without.has(path.as_str(), request.method()))
        && let Err(refused) = Asked::<Nothing>::of(request.uri())
    {
        return refused.into_response();
    }
    next.run(request).await
}
