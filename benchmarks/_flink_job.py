"""Runs statements of Flink SQL, in an interpreter that has Flink's package: `PYTHON _flink_job.py SETTINGS`.

It needs nothing but the standard library and `pyflink`, so that Flink can have an environment of its own. Flink runs in
one Java process, which stays, so that a later job finds it warm. Every line of the standard input is a request as
JSON, and every answer is a line that begins with the mark. ``{"run": [statements], "settings": {}}`` executes
statements, of which the last is an INSERT that goes on; ``{"wait": true}`` waits for its end, where its input is
bounded, and ``{"stop": true}`` ends it.
"""

import json
import sys
from typing import Any

MARK = "» flink "


def main(settings: dict[str, str]) -> None:
    """Answer requests until the input ends."""
    job: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "run" in request:
                job = _run(settings | request["settings"], request["run"])
                answer = {"job": str(job.get_job_id())}
            elif "wait" in request:
                job.get_job_execution_result().result()
                answer = {}
            else:
                job.cancel().result()
                answer = {}
        except Exception as error:
            answer = {"error": str(error)[-2000:]}
        print(f"{MARK}{json.dumps(answer)}", flush=True)


def _run(settings: dict[str, str], statements: list[str]) -> Any:
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(made)
    for statement in statements[:-1]:
        tables.execute_sql(statement)
    return tables.execute_sql(statements[-1]).get_job_client()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
