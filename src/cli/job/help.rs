//! The examples in the help texts of `everytick job`.

pub(super) const CREATE_HELP: &str = "\
Examples:
  everytick job create nightly --cron '0 2 * * *' --tz Europe/Paris --url https://example.org/hook
  everytick job create poll --every 15m --url https://example.org/poll --method GET --timeout 10s
  everytick job create cleanup --cron '@daily' -- /usr/local/bin/cleanup --older-than 7d
  everytick job create dump --cron 'H 3 * * *' --shell 'pg_dump app | gzip > /backup/app.gz'
  everytick job create report --cron '0 6 * * 1-5' --exclude holidays --url https://example.org/hook
  everytick job create launch --at '2026-11-16 07:00' --url https://example.org/go --payload '[1]'
  everytick job create load --after extract --url https://example.org/load
  everytick job create -f job.json
  everytick job create --batch jobs.ndjson

A job without --cron, --every or --at runs when it is triggered, or after its --after jobs have ended.
With -f, flags override the file. --batch reads one job per line: it creates every valid job and lists
the errors of the others.";

pub(super) const LIST_HELP: &str = "\
Examples:
  everytick job list
  everytick job list --label team=billing --target http
  everytick job list -q report -o json | jq -r '.items[].name'";

pub(super) const GET_HELP: &str = "\
Examples:
  everytick job get nightly
  everytick job get nightly -o json";

pub(super) const UPDATE_HELP: &str = "\
Examples:
  everytick job update nightly --cron '30 2 * * *'
  everytick job update nightly --timeout 2m --max-retries 5 --label team=billing
  everytick job update nightly --no-schedule --if-version 3

Fields without a flag do not change. Ticks already due under the old definition are recorded first.";

pub(super) const DELETE_HELP: &str = "\
Examples:
  everytick job delete nightly
  everytick job delete nightly --cancel
  everytick job delete --label team=billing --dry-run
  everytick job delete --label team=billing --yes

The history keeps the runs of a deleted job. Runs in progress continue, unless --cancel is set. A job that others follow is
deleted after them.
With several jobs, --label or --all, the command asks for a confirmation, unless --yes is set. Each job is changed on its own: a
job that fails does not stop the others, and the command then exits with 1.";

pub(super) const PAUSE_HELP: &str = "\
Examples:
  everytick job pause nightly --note 'the receiver is being moved'
  everytick job pause extract load
  everytick job pause --all --yes --note 'maintenance'

Once the command returns, no tick gets a run. Runs in progress continue, unless --cancel is set.
With several jobs, --label or --all, the command asks for a confirmation, unless --yes is set. Each job is changed on its own: a
job that fails does not stop the others, and the command then exits with 1.";

pub(super) const RESUME_HELP: &str = "\
Examples:
  everytick job resume nightly
  everytick job resume --label team=billing

Ticks during the pause get no run. A disabled job is not resumed (exit 4): use `everytick job update nightly --enabled`.
With several jobs, --label or --all, the command asks for a confirmation, unless --yes is set. Each job is changed on its own: a
job that fails does not stop the others, and the command then exits with 1.";

pub(super) const TRIGGER_HELP: &str = "\
Examples:
  everytick job trigger nightly
  everytick job trigger nightly --payload '{\"report\": \"monthly\"}'
  everytick job trigger nightly --wait
  everytick job trigger nightly --idempotency-key deploy-812

Prints the id of the run on stdout. Exits with 4 if the run was skipped, such as when another run of the job is open.
With --wait: exits with 0 only if the run succeeded. Ctrl-C stops waiting, not the run.";

pub(super) const CANCEL_HELP: &str = "\
Examples:
  everytick job cancel nightly
  everytick job cancel --all --dry-run

A job continues with its next tick. To stop its ticks too, use `everytick job pause nightly --cancel`.
With several jobs, --label or --all, the command asks for a confirmation, unless --yes is set. Each job is changed on its own: a
job that fails does not stop the others, and the command then exits with 1.";

pub(super) const NEXT_HELP: &str = "\
Examples:
  everytick job next nightly
  everytick job next nightly -n 30
  everytick job next nightly -n 3 --from 2027-03-12

The note describes the effect of a clock change on a tick. A time that does not exist has no tick; its row has no UTC time.";

pub(super) const EXPLAIN_HELP: &str = "\
Examples:
  everytick job explain nightly
  everytick job explain nightly --at yesterday
  everytick job explain nightly --at '2026-12-25 02:00'
  everytick job explain nightly --at 2026-12-25 -o json | jq -r .kind

Without --at, the command explains the last tick up to now, or the newest run of a job without a schedule. The answer has
times in the zone of the job and in UTC, or with --utc in UTC alone. It ends with the next tick. A deleted job can be
explained while its record is stored. `everytick run explain RUN` explains one run.";

pub(super) const RUNS_HELP: &str = "\
Examples:
  everytick job runs nightly
  everytick job runs nightly --status failed,cancelled --limit 20
  everytick job runs nightly --from 2026-11-01 --to 2026-12-01";
