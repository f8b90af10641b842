//! The page of the login, and the page of a user who is logged in.

use axum::{http::StatusCode, response::Response};

use super::page;
use crate::{
    auth::{Caller, login::PATH},
    docs::escape,
    wire::token::Me,
};

/// The form of the login.
pub(crate) struct Form<'a> {
    /// The path to which the login leads.
    pub(crate) next: &'a str,
    /// Why the last try failed.
    pub(crate) wrong: Option<&'a str>,
    /// Requests need no credential.
    pub(crate) is_open: bool,
    pub(crate) status: StatusCode,
}

impl Form<'_> {
    pub(crate) fn page(&self) -> Response {
        let mut html = String::from("<h1>Log in to Everytick</h1>");
        if self.is_open {
            html += "<p>This server is open: programs on its machine need no login.</p>";
        }
        let (mut describes, mut invalid) = ("token-hint".to_owned(), "");
        if let Some(wrong) = self.wrong {
            html += &format!("<p class=\"wrong\" role=\"alert\" id=\"token-wrong\">{}</p>", escape(wrong));
            describes = format!("token-wrong {describes}");
            invalid = " aria-invalid=\"true\"";
        }
        html += &format!(
            "<form method=\"post\" action=\"{PATH}\">\
             <input type=\"hidden\" name=\"next\" value=\"{}\">\
             <label for=\"token\">API token</label>\
             <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus \
             spellcheck=\"false\" autocapitalize=\"none\" maxlength=\"200\" aria-describedby=\"{describes}\"{invalid}>\
             <p class=\"hint\" id=\"token-hint\">A token begins with etk_. An admin creates one with \
             <code>everytick token create</code>.</p>\
             <button type=\"submit\">Log in</button></form>",
            escape(self.next)
        );
        page(self.status, "Log in", &html)
    }
}

/// The page of a user who is logged in.
pub(crate) fn account(caller: &Caller, csrf: &str) -> Response {
    let me = Me::of(caller);
    let mut facts = format!("<dt>User</dt><dd>{}</dd>", escape(&me.actor));
    for (name, value) in [("Role", me.role.map(|role| role.to_string())), ("Tenant", me.tenant)] {
        if let Some(value) = value {
            facts += &format!("<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
    }
    let html = format!(
        "<h1>You are logged in</h1><dl>{facts}</dl><p><a href=\"/docs\">API reference</a></p>\
         <form method=\"post\" action=\"/auth/logout\">\
         <input type=\"hidden\" name=\"everytick-csrf\" value=\"{}\">\
         <button type=\"submit\">Log out</button></form>",
        escape(csrf)
    );
    page(StatusCode::OK, "Logged in", &html)
}
