//! The tools of MCP servers, as `<server>.<tool>`. What a server says of its tools, such as that one only reads, is a hint and
//! changes nothing: every one of them is judged as a tool with effects.

use std::sync::Arc;

use ctx_session::{Code, Name, RunId};
use serde_json::{Map, Value, json};

use super::{Plan, Scope, Tool, ToolError, Tools, Work};
use crate::control::policy::Effects;
use crate::mcp::{Asked, McpServers, Offered, ServerWant};
use crate::model::ToolSpec;

/// A server as its tools reach it.
#[derive(Clone)]
pub struct Source {
    pub servers: Arc<McpServers>,
    pub run: RunId,
    pub name: Name,
    pub want: ServerWant,
}

/// One tool of a server.
pub struct McpTool {
    source: Source,
    offered: Offered,
}

/// What stands for the tools of a server that did not start: it tries once more.
pub struct McpStart {
    source: Source,
    why: String,
}

impl Tools {
    /// And those of a server; of one that is not there, a tool that starts it.
    #[must_use]
    pub fn and_of_server(mut self, source: Source, offers: Result<Arc<[Offered]>, String>) -> Tools {
        match offers {
            Ok(offered) => {
                let tool = |offered: &Offered| -> Arc<dyn Tool> {
                    Arc::new(McpTool { source: source.clone(), offered: offered.clone() })
                };
                self.tools.extend(offered.iter().map(tool));
            }
            Err(why) => {
                self.absent.push((source.name.clone(), why.clone()));
                self.tools.push(Arc::new(McpStart { source, why }));
            }
        }
        self
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name(),
            description: self.offered.description.clone(),
            schema: self.offered.schema.clone(),
        }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.source.name, self.offered.name)
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn runs_in_parallel(&self) -> bool {
        true
    }

    /// The server checks the arguments itself; a policy sees them as they are sent.
    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input = match input {
            Value::Object(input) => input,
            Value::Null => Map::new(),
            _ => {
                let message = format!(
                    "bad arguments for {}: an object is wanted; its schema is {}",
                    self.name(),
                    self.offered.schema
                );
                return Err(ToolError::new(Code::Einval, message));
            }
        };
        let subject = Value::Object(input.clone()).to_string();
        let (source, tool, session) = (self.source.clone(), self.offered.name.clone(), scope.session);
        let work = async move {
            let Source { servers, run, name, want } = source;
            servers.call(Asked { session, run, server: &name }, &want, &tool, input).await
        };
        Ok(Plan::new(vec![subject], Work::Do(Box::pin(work))))
    }
}

impl Tool for McpStart {
    fn spec(&self) -> ToolSpec {
        let Source { name, .. } = &self.source;
        ToolSpec {
            name: self.name(),
            description: format!("The MCP server {name} did not start: {}. Starts it once more.", self.why),
            schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        }
    }

    fn name(&self) -> String {
        format!("{}.start", self.source.name)
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, _: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let (source, session) = (self.source.clone(), scope.session);
        let work = async move {
            let Source { servers, run, name, want } = source;
            let started = servers.start_again(Asked { session, run, server: &name }, &want).await;
            match started {
                Ok(count) => Ok(format!("the MCP server {name} is there with {count} tools").into()),
                Err(refusal) => {
                    let message = format!("the MCP server {name} did not start: {}", refusal.message);
                    Err(ToolError::new(refusal.code, message))
                }
            }
        };
        Ok(Plan::new(Vec::new(), Work::Do(Box::pin(work))))
    }
}
