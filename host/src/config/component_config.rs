//! `[config]`: values for the component, read through `wasi:config`.
//!
//! Invariant: a value taken from the host's environment is shown nowhere, and no message
//! quotes any value of this table.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::error::Problem;
use super::origin::Origin;
use super::raw::{Raw, RawValue};
use super::sandbox::is_variable_name;
use super::table::{Definition, Refusal, Table, subject};

/// Looks up a variable of the host's environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The values a component is given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentConfig {
    values: BTreeMap<String, ConfigValue>,
    /// Still to be looked up: a value given later may make the look-up needless.
    variables: BTreeMap<String, (String, Origin)>,
}

/// One value. What is secret shows in no message: `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigValue {
    text: String,
    secret: bool,
}

impl ConfigValue {
    /// The value itself, for the component only.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Whether it came from the host's environment.
    pub fn is_secret(&self) -> bool {
        self.secret
    }
}

impl fmt::Debug for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.secret {
            true => f.write_str("(secret)"),
            false => write!(f, "{:?}", self.text),
        }
    }
}

impl ComponentConfig {
    /// The values by key.
    pub fn values(&self) -> &BTreeMap<String, ConfigValue> {
        &self.values
    }

    /// Takes the values that the environment holds. A missing one is a problem: a component
    /// that finds no password should not be started.
    pub(super) fn look_up(&mut self, environment: Environment<'_>, problems: &mut Vec<Problem>) {
        for (key, (variable, origin)) in std::mem::take(&mut self.variables) {
            let text = environment(&variable).map(OsString::into_string);
            let message = match text {
                Some(Ok(text)) => {
                    self.values.insert(key, ConfigValue { text, secret: true });
                    continue;
                }
                Some(Err(_)) => "holds what is not valid UTF-8; set it to text",
                None => "is not set; set it, or write the value here",
            };
            let message = format!(
                "the environment variable {} {message}",
                variable.escape_debug()
            );
            problems.push(Problem::with(&origin, subject("config", &key), message));
        }
    }
}

impl Table for ComponentConfig {
    fn name(&self) -> &'static str {
        "config"
    }

    fn about(&self) -> &'static str {
        "Values for the component, read through `wasi:config`. Any key may stand here, with text, \
         a number, `true` or `false`. `{ env = \"NAME\" }` takes the value from the host's \
         environment and shows it nowhere."
    }

    /// Its keys are the component's, so none is defined here.
    fn definitions(&self) -> Vec<Definition> {
        Vec::new()
    }

    fn set(&mut self, key: &str, raw: &Raw) -> Result<(), Refusal> {
        let text = match &raw.value {
            RawValue::Text(text) => text.clone(),
            RawValue::Integer(integer) => integer.to_string(),
            RawValue::Float(float) if float.is_finite() => format!("{float:?}"),
            RawValue::Boolean(boolean) => boolean.to_string(),
            RawValue::Argument(argument) => match argument.to_str() {
                Some(text) => text.to_owned(),
                None => return Err(Refusal::Value("must be valid UTF-8".to_owned())),
            },
            RawValue::Table(entries) => {
                let variable = variable(entries)?;
                self.values.remove(key);
                self.variables
                    .insert(key.to_owned(), (variable, raw.origin.clone()));
                return Ok(());
            }
            RawValue::Float(_) | RawValue::Date | RawValue::List(_) => return Err(refusal()),
        };
        self.variables.remove(key);
        self.values.insert(
            key.to_owned(),
            ConfigValue {
                text,
                secret: false,
            },
        );
        Ok(())
    }
}

fn variable(entries: &[(String, Raw)]) -> Result<String, Refusal> {
    match entries {
        [(key, raw)] if key == "env" => match raw.text().filter(|name| is_variable_name(name)) {
            Some(name) => Ok(name.to_owned()),
            None => Err(Refusal::Value(
                "env must be the name of an environment variable".to_owned(),
            )),
        },
        _ => Err(refusal()),
    }
}

fn refusal() -> Refusal {
    let message = "must be text, a finite number, true, false or { env = \"NAME\" }; \
                   put anything else in quotes";
    Refusal::Value(message.to_owned())
}
