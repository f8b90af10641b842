//! Sessions of browsers: login, cookie, changes, logout.

use everytick_domain::{
    access::{Grant, Lifetime, NamedGrant, Role, Scope, SessionSecret, Token},
    ids::{SessionId, TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{Actor, Creator, NewSession, NewToken, TokenKey};
use serde_json::{Value, json};

use crate::support::{Answer, NONE, Server, job};

const TENANT: TenantId = TenantId::DEFAULT;
const ORIGIN: &str = "http://127.0.0.1:8640";
const FORM: &str = "application/x-www-form-urlencoded";

/// Stores a token. Each token needs its own number.
async fn token(server: &Server, n: u8, role: Role, scope: Scope) -> String {
    let token = Token::from_random(&[n; 64]).unwrap();
    let key = TokenKey { hash: token.hash(), id: token_id(n), prefix: token.prefix().to_owned() };
    let grant = Grant { tenant: (role != Role::Instance).then_some(TENANT), role, scope };
    let (name, lifetime) = (format!("t{n}"), Lifetime::For(Span::days(90)));
    let new = NewToken { key, name, grant, allowed_ips: Vec::new(), lifetime };
    server.store.create_token(&Actor::local("test"), &Creator::Open, new).await.unwrap();
    token.expose().to_owned()
}

fn token_id(n: u8) -> TokenId {
    TokenId::new(DbTime::EPOCH, [n; 10])
}

/// A browser, with the cookie of the server and the CSRF token of its page.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
    csrf: String,
}

async fn post_form(server: &Server, path: &str, headers: &[(&str, &str)], form: &[(&str, &str)]) -> Answer {
    let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let given = |name: &str| headers.iter().any(|(key, _)| *key == name);
    let own = [("content-type", FORM), ("origin", ORIGIN)].into_iter().filter(|(name, _)| !given(name));
    let headers: Vec<_> = own.chain(headers.iter().copied()).collect();
    server.call("POST", path, &headers, body).await
}

/// The name and the value of the cookie that an answer sets.
fn cookie_of(answer: &Answer) -> String {
    answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
}

impl<'a> Browser<'a> {
    async fn log_in(server: &'a Server, token: &str) -> Self {
        let answer = post_form(server, "/auth/login", &[], &[("token", token)]).await;
        assert_eq!(answer.status.as_u16(), 303, "{}", answer.text);
        Self::with(server, cookie_of(&answer)).await
    }

    async fn with(server: &'a Server, cookie: String) -> Self {
        let browser = Self { server, cookie, csrf: String::new() };
        let me = browser.get("/api/v1/me").await.expect(200);
        Self { csrf: me["csrf_token"].as_str().unwrap().to_owned(), ..browser }
    }

    async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        let given = |name: &str| headers.iter().any(|(key, _)| *key == name);
        let own = [("cookie", self.cookie.as_str()), ("origin", ORIGIN), ("everytick-csrf", self.csrf.as_str())];
        let own = own.into_iter().filter(|(name, value)| !given(name) && !value.is_empty());
        let headers: Vec<_> = own.chain(headers.iter().copied()).collect();
        self.server.call(method, path, &headers, crate::support::text_of(&body)).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[("origin", NONE)], Value::Null).await
    }
    async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[], body).await
    }
    async fn status(&self) -> u16 {
        self.get("/api/v1/jobs").await.status.as_u16()
    }
}

async fn audit(server: &Server, token: &str, query: &str) -> Vec<Value> {
    let bearer = format!("Bearer {token}");
    let path = format!("/api/v1/audit?{query}");
    let page = server.call("GET", &path, &[("authorization", &bearer)], "").await.expect(200);
    page["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_browser_logs_in_with_a_token_acts_and_logs_out() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let page = server.get("/auth/login?next=/docs").await;
    assert_eq!(page.status.as_u16(), 200);
    let csp = page.header("content-security-policy");
    assert!(csp.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{csp}");
    assert_eq!(page.header("referrer-policy"), "same-origin", "otherwise browsers send Origin: null");
    for part in ["autocomplete=\"current-password\"", "<label for=\"token\">", "value=\"/docs\"", "/auth/style.css"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    for part in ["<script", "style=", "onclick"] {
        assert!(!page.text.contains(part), "{part}");
    }
    let answer = post_form(&server, "/auth/login", &[], &[("token", &admin), ("next", "/docs")]).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/docs"));
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("everytick="), "{cookie}");
    assert!(cookie.ends_with("; Max-Age=43200; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    let browser = Browser::with(&server, cookie_of(&answer)).await;
    let me = browser.get("/api/v1/me").await.expect(200);
    assert_eq!((&me["actor"], &me["role"], &me["session"]["own"]), (&json!("token:t1"), &json!("admin"), &json!(true)));
    assert!(me["permissions"].as_array().unwrap().contains(&json!("manage")), "{me}");
    browser.post("/api/v1/jobs", job("j")).await.expect(201);
    browser.post("/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    let account = browser.get("/auth/login").await;
    assert!(account.text.contains("token:t1") && account.text.contains(&browser.csrf), "{}", account.text);
    let form = [("everytick-csrf", browser.csrf.as_str())];
    let out = post_form(&server, "/auth/logout", &[("cookie", &browser.cookie)], &form).await;
    assert_eq!((out.status.as_u16(), out.header("location")), (303, "/auth/login"));
    assert!(out.header("set-cookie").starts_with("everytick=; Max-Age=0; Path=/"), "{}", out.header("set-cookie"));
    assert_eq!(browser.status().await, 401, "the cookie has no rights after the logout");
    let rows = audit(&server, &admin, "actor=token:t1").await;
    let actions: Vec<_> = rows.iter().rev().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["login", "create", "trigger", "logout"]);
    assert!(rows.iter().all(|row| row["token_id"] == json!(token_id(1).to_string())), "{rows:?}");
}

#[tokio::test]
async fn over_https_the_cookie_is_secure_and_bound_to_the_host() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let at = [("host", "jobs.example.org"), ("origin", "https://jobs.example.org")];
    let answer = post_form(&server, "/auth/login", &at, &[("token", &admin)]).await;
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-everytick="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    let get = async |cookie: &str| {
        let headers = [("host", "jobs.example.org"), ("cookie", cookie)];
        server.call("GET", "/api/v1/jobs", &headers, "").await.status.as_u16()
    };
    let cookie = cookie_of(&answer);
    assert_eq!(get(&cookie).await, 200);
    assert_eq!(get(cookie.trim_start_matches("__Host-")).await, 401, "another host could have set this cookie");
}

#[tokio::test]
async fn a_change_in_a_session_must_come_from_a_page_of_this_server() {
    let server = Server::required().await;
    let browser = {
        let admin = token(&server, 1, Role::Admin, Scope::default()).await;
        Browser::log_in(&server, &admin).await
    };
    let other = {
        let admin = token(&server, 2, Role::Admin, Scope::default()).await;
        Browser::log_in(&server, &admin).await
    };
    for (headers, word) in [
        (&[("origin", NONE)][..], "forbidden"),
        (&[("origin", "http://evil.example")], "forbidden"),
        (&[("origin", "null")], "forbidden"),
        (&[("everytick-csrf", NONE)], "forbidden"),
        (&[("everytick-csrf", &other.csrf)], "forbidden"),
        (&[("sec-fetch-site", "cross-site")], "cross-site"),
        (&[("sec-fetch-site", "same-site")], "cross-site"),
        (&[("sec-fetch-site", "none")], "cross-site"),
    ] {
        for (method, path) in [("POST", "/api/v1/jobs"), ("DELETE", "/api/v1/me"), ("PUT", "/api/v1/calendars/c")] {
            let refused = browser.call(method, path, headers, job("j")).await.expect(403);
            assert_eq!(refused["type"], format!("urn:everytick:problem:{word}"), "{method} {headers:?}: {refused}");
        }
        let with_cookie: Vec<_> =
            [("cookie", browser.cookie.as_str())].into_iter().chain(headers.iter().copied()).collect();
        if headers[0].0 != "everytick-csrf" {
            let form = [("everytick-csrf", browser.csrf.as_str())];
            let refused = post_form(&server, "/auth/logout", &with_cookie, &form).await;
            assert_eq!(refused.status.as_u16(), 403, "logout {headers:?}");
            let refused = post_form(&server, "/auth/login", &with_cookie, &[("token", "x")]).await;
            assert_eq!(refused.status.as_u16(), 403, "login {headers:?}");
        }
    }
    for form in [&[][..], &[("everytick-csrf", other.csrf.as_str())]] {
        let refused = post_form(&server, "/auth/logout", &[("cookie", &browser.cookie)], form).await;
        assert_eq!(refused.status.as_u16(), 403, "{form:?}");
    }
    assert_eq!(browser.status().await, 200, "nothing was changed");
    browser.call("POST", "/api/v1/jobs", &[("sec-fetch-site", "same-origin")], job("j")).await.expect(201);
}

#[tokio::test]
async fn a_login_gives_a_new_secret_and_ends_the_session_that_the_browser_had() {
    let server = Server::required().await;
    let bob = token(&server, 2, Role::Admin, Scope::default()).await;
    let ann = token(&server, 1, Role::Viewer, Scope::default()).await;
    // An attacker sets the cookie of his own session in the browser of another user, who then logs in.
    let attacker = Browser::log_in(&server, &ann).await;
    let answer = post_form(&server, "/auth/login", &[("cookie", &attacker.cookie)], &[("token", &bob)]).await;
    let victim = cookie_of(&answer);
    assert!(answer.status.as_u16() == 303 && victim != attacker.cookie, "{victim}");
    assert_eq!(attacker.status().await, 401);
    let unknown = format!("everytick={}", SessionSecret::from_random([7; 32]).expose());
    let answer = post_form(&server, "/auth/login", &[("cookie", &unknown)], &[("token", &bob)]).await;
    assert_ne!(cookie_of(&answer), unknown, "the secret is never the one that the browser sends");
}

#[tokio::test]
async fn a_login_leads_only_to_a_path_of_this_server() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    for (next, expected) in
        [("/docs?a=b", "/docs?a=b"), ("//evil.example", "/"), ("https://evil.example", "/"), ("/\\evil.example", "/")]
    {
        let answer = post_form(&server, "/auth/login", &[], &[("token", &admin), ("next", next)]).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, expected), "{next}");
        let pairs = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        let page = server.get(&format!("/auth/login?{pairs}")).await;
        assert!(page.text.contains(&format!("name=\"next\" value=\"{expected}\"")), "{}", page.text);
    }
    let page = server.get("/auth/login?next=/%22%3E%3Cb%3E").await;
    assert!(!page.text.contains("\"><b>"), "the path is escaped: {}", page.text);
}

#[tokio::test]
async fn a_wrong_token_begins_no_session_and_has_an_audit_row() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let unknown = Token::from_random(&[9; 64]).unwrap();
    for text in ["", "password", unknown.expose(), "etr_00"] {
        let answer = post_form(&server, "/auth/login", &[], &[("token", text)]).await;
        assert_eq!((answer.status.as_u16(), answer.header("set-cookie")), (403, ""), "{text}");
        assert!(answer.text.contains("role=\"alert\"") && answer.header("content-type").starts_with("text/html"));
        assert!(!answer.text.contains(unknown.expose()), "the page does not repeat the token");
    }
    for _ in 0..6 {
        post_form(&server, "/auth/login", &[], &[("token", "x")]).await;
    }
    let limited = post_form(&server, "/auth/login", &[], &[("token", "x")]).await;
    assert_eq!((limited.status.as_u16(), limited.header("retry-after")), (429, "6"));
    Browser::log_in(&server, &admin).await;
    let rows = audit(&server, &admin, "action=login&result=denied").await;
    assert_eq!(rows.len(), 11);
    assert_eq!((&rows[0]["actor_kind"], &rows[0]["subject"]), (&json!("anonymous"), &json!("POST /auth/login")));
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_cannot_rotate_it() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let viewer = token(&server, 2, Role::Viewer, Scope::default()).await;
    let browser = Browser::log_in(&server, &viewer).await;
    assert_eq!(browser.status().await, 200);
    browser.post("/api/v1/jobs", job("j")).await.expect(403);
    let rotate = format!("/api/v1/tokens/{}/rotate", token_id(2));
    browser.post(&rotate, Value::Null).await.expect(403);
    let bearer = format!("Bearer {admin}");
    let path = format!("/api/v1/tokens/{}", token_id(2));
    server.call("DELETE", &path, &[("authorization", &bearer)], "").await.expect(200);
    let refused = browser.get("/api/v1/jobs").await;
    assert_eq!(refused.status.as_u16(), 401);
    assert!(refused.header("set-cookie").contains("Max-Age=0"), "the browser forgets the cookie");
}

#[tokio::test]
async fn the_first_credential_of_a_request_decides() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let viewer = token(&server, 2, Role::Viewer, Scope::default()).await;
    let browser = Browser::log_in(&server, &admin).await;
    let with = async |bearer: &str| {
        let headers = [("authorization", bearer), ("cookie", browser.cookie.as_str())];
        server.call("GET", "/api/v1/me", &headers, "").await
    };
    assert_eq!(with(&format!("Bearer {viewer}")).await.expect(200)["actor"], "token:t2");
    let wrong = with("Bearer x").await;
    assert_eq!((wrong.status.as_u16(), wrong.header("set-cookie")), (401, ""));
    // Also while the API is open, a wrong credential is an error.
    let open = Server::new().await;
    let headers = [("cookie", "everytick=x")];
    assert_eq!(open.call("GET", "/api/v1/jobs", &headers, "").await.status.as_u16(), 401);
}

#[tokio::test]
async fn an_admin_lists_and_ends_the_sessions_that_it_manages() {
    let server = Server::required().await;
    let etl = Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() };
    let admin = Browser::log_in(&server, &token(&server, 1, Role::Admin, Scope::default()).await).await;
    let viewer = Browser::log_in(&server, &token(&server, 2, Role::Viewer, Scope::default()).await).await;
    let limited = Browser::log_in(&server, &token(&server, 3, Role::Admin, etl).await).await;
    let instance = Browser::log_in(&server, &token(&server, 4, Role::Instance, Scope::default()).await).await;
    let users = async |browser: &Browser<'_>| {
        let page = browser.get("/api/v1/sessions").await.expect(200);
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["user"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(users(&admin).await, ["token:t1", "token:t2", "token:t3"]);
    assert_eq!(users(&limited).await, ["token:t3"]);
    viewer.get("/api/v1/sessions").await.expect(403);
    let id = async |browser: &Browser<'_>| {
        let me = browser.get("/api/v1/me").await.expect(200);
        format!("/api/v1/sessions/{}", me["session"]["id"].as_str().unwrap())
    };
    let (of_viewer, of_instance) = (id(&viewer).await, id(&instance).await);
    limited.call("DELETE", &of_viewer, &[], Value::Null).await.expect(404);
    admin.call("DELETE", &of_instance, &[], Value::Null).await.expect(404);
    let ended = admin.call("DELETE", &of_viewer, &[], Value::Null).await.expect(200);
    assert_eq!((&ended["user"], &ended["own"]), (&json!("token:t2"), &json!(false)));
    assert_eq!((viewer.status().await, limited.status().await), (401, 200));
    admin.call("DELETE", &of_viewer, &[], Value::Null).await.expect(404);
    admin.call("DELETE", "/api/v1/sessions/1", &[], Value::Null).await.expect(404);
}

#[tokio::test]
async fn a_caller_ends_its_own_session() {
    let server = Server::required().await;
    token(&server, 9, Role::Admin, Scope::default()).await;
    let viewer = token(&server, 1, Role::Viewer, Scope { read_only: true, ..Scope::default() }).await;
    let browser = Browser::log_in(&server, &viewer).await;
    let ended = browser.call("DELETE", "/api/v1/me", &[], Value::Null).await;
    assert!(ended.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(ended.expect(200)["own"], true);
    assert_eq!(browser.status().await, 401);
    let bearer = format!("Bearer {viewer}");
    let refused = server.call("DELETE", "/api/v1/me", &[("authorization", &bearer)], "").await.expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("/auth/login"), "{refused}");
}

/// Stores a session of a user without a token, as a login without one creates it.
async fn user_session(server: &Server, n: u8, grants: Vec<NamedGrant>) -> String {
    let secret = SessionSecret::from_random([n; 32]);
    let id = SessionId::new(DbTime::EPOCH, [n; 10]);
    let (user, hash) = (format!("user:u{n}"), secret.hash());
    let new = NewSession { hash, id, user, token: None, grants, tenant: None, ip: None, replaces: None };
    server.store.create_session(TENANT, &Actor::local("test"), new).await.unwrap();
    format!("everytick={}", secret.expose())
}

fn granted(tenant: &str, role: Role) -> NamedGrant {
    NamedGrant { tenant: Some(tenant.to_owned()), role, scope: Scope::default() }
}

#[tokio::test]
async fn a_user_acts_under_its_name_in_the_tenant_that_it_chooses() {
    let server = Server::required().await;
    let grants = vec![granted("gone", Role::Admin), granted("default", Role::Editor)];
    let browser = Browser::with(&server, user_session(&server, 1, grants).await).await;
    let me = browser.get("/api/v1/me").await.expect(200);
    assert_eq!((&me["actor"], &me["role"], &me["tenant"]), (&json!("user:u1"), &json!("editor"), &json!("default")));
    assert_eq!((&me["token"], &me["session"]["grants"][0]["tenant"]), (&Value::Null, &json!("gone")));
    browser.post("/api/v1/jobs", job("j")).await.expect(201);
    let made = browser.get("/api/v1/jobs/j").await.expect(200);
    assert_eq!(made["created_by"], "user:u1");
    let chosen = browser.post("/api/v1/me/tenant", json!({"tenant": "default"})).await.expect(200);
    assert_eq!((&chosen["tenant"], &chosen["session"]["tenant"]), (&json!("default"), &json!("default")));
    for (body, status) in [(json!({"tenant": "gone"}), 404), (json!({"tenant": "other"}), 404), (json!({}), 422)] {
        browser.post("/api/v1/me/tenant", body).await.expect(status);
    }
    let header = [("everytick-tenant", "default"), ("origin", NONE)];
    browser.call("GET", "/api/v1/jobs", &header, Value::Null).await.expect(403);
    let none = user_session(&server, 2, vec![granted("gone", Role::Admin)]).await;
    let refused = server.call("GET", "/api/v1/me", &[("cookie", &none)], "").await;
    assert_eq!(refused.status.as_u16(), 401, "no tenant of its grants exists");
}

#[tokio::test]
async fn a_session_of_an_instance_token_acts_in_the_tenant_that_it_chooses() {
    let server = Server::required().await;
    let instance = token(&server, 1, Role::Instance, Scope::default()).await;
    let browser = Browser::log_in(&server, &instance).await;
    assert_eq!(browser.status().await, 403, "an instance token belongs to no tenant");
    let me = browser.post("/api/v1/me/tenant", json!({"tenant": "default"})).await.expect(200);
    assert_eq!((&me["role"], &me["tenant"]), (&json!("admin"), &json!("default")));
    assert_eq!(browser.status().await, 200);
    browser.post("/api/v1/me/tenant", json!({"tenant": "other"})).await.expect(404);
    let bearer = format!("Bearer {instance}");
    let body = json!({"tenant": "default"}).to_string();
    server.call("POST", "/api/v1/me/tenant", &[("authorization", &bearer)], body).await.expect(409);
}

#[tokio::test]
async fn a_browser_is_led_to_the_login_if_requests_need_a_credential() {
    let server = Server::required().await;
    let admin = token(&server, 1, Role::Admin, Scope::default()).await;
    let html = ("accept", "text/html,application/xhtml+xml");
    let home = async |server: &Server, headers: &[(&str, &str)]| {
        let answer = server.call("GET", "/", headers, "").await;
        (answer.status.as_u16(), answer.header("location").to_owned())
    };
    assert_eq!(home(&server, &[html]).await, (303, "/auth/login?next=/".to_owned()));
    assert_eq!(home(&server, &[]).await, (307, "/docs".to_owned()));
    let browser = Browser::log_in(&server, &admin).await;
    assert_eq!(home(&server, &[html, ("cookie", &browser.cookie)]).await, (307, "/docs".to_owned()));
    let open = Server::new().await;
    assert_eq!(home(&open, &[html]).await, (307, "/docs".to_owned()));
    assert!(open.get("/auth/login").await.text.contains("This server is open"));
}
