# SPDX-License-Identifier: Apache-2.0
"""Experiment files: what one may hold, and the scenario of each of its runs. Errors name file, field, what was expected and found."""
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NUMBER = (int, float)
TEXT, OBJECT, LIST = (str,), (dict,), (list,)
FIELDS = {"paper": TEXT, "name": TEXT, "title": TEXT, "parameters": OBJECT, "main": TEXT, "against": OBJECT, "quick": OBJECT, "quick_scale": NUMBER, "second_scale": NUMBER,
          "quick_skips": TEXT, "quick_shortens": OBJECT, "scaled": LIST, "by_rate": OBJECT, "sweeps": OBJECT, "runs": OBJECT}
NEEDED = ("paper", "name", "parameters", "main", "runs", "quick")
PARAMETER = {"value": None, "from": TEXT, "assumed": TEXT, "second": None, "cannot_matter": TEXT}
SWEEP = {"fields": OBJECT, "rates": LIST, "by_rate": OBJECT}
AGAINST = {"run": TEXT, "field": TEXT, "says": TEXT}
SAYS = {TEXT: "a text", OBJECT: "an object", LIST: "a list", NUMBER: "a number"}


class Refused(Exception):
    """What the caller gave is wrong: one line."""


def check_object(where, found, known, needed):
    if not isinstance(found, dict):
        raise Refused(f"{where.rstrip('.')}: expected an object, found {json.dumps(found)[:40]}")
    for key, value in found.items():
        if key not in known:
            raise Refused(f"{where}{key}: expected one of {', '.join(known)}, found an unknown key")
        kinds = known[key]
        if kinds and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise Refused(f"{where}{key}: expected {SAYS[kinds]}, found {json.dumps(value)}")
    for key in needed:
        if key not in found:
            raise Refused(f"{where}{key}: expected, found nothing")


def check_parameter(where, parameter):
    """A value, where it is from or why it was assumed; of an assumption what a second run has, or why none is needed."""
    check_object(f"{where}.", parameter, PARAMETER, ("value",))
    if ("from" in parameter) == ("assumed" in parameter):
        raise Refused(f"{where}: expected either from (a section) or assumed (why), found {json.dumps(parameter)}")
    if "assumed" in parameter and ("second" in parameter) == ("cannot_matter" in parameter):
        raise Refused(f"{where}: expected of an assumption either second (the value of another run) or cannot_matter (why it decides nothing), "
                      f"found {json.dumps(parameter)}")
    if "second" in parameter and (parameter["second"] == parameter["value"] or type(parameter["second"]) is not type(parameter["value"])):
        if not (isinstance(parameter["second"], NUMBER) and isinstance(parameter["value"], NUMBER) and parameter["second"] != parameter["value"]):
            raise Refused(f"{where}.second: expected another value of the same type as {json.dumps(parameter['value'])}, "
                          f"found {json.dumps(parameter['second'])}")


def check_factors(where, factors):
    for name, factor in factors.items():
        if not isinstance(factor, NUMBER) or isinstance(factor, bool) or factor <= 0:
            raise Refused(f"{where}.{name}: expected a number above 0, found {json.dumps(factor)}")


def check_multiplied(where, experiment):
    """What is scaled, shortened, or goes by the rate is a number of the parameters'."""
    check_factors(f"{where}quick_shortens", experiment.get("quick_shortens", {}))
    by_rate = [("by_rate", experiment.get("by_rate", {}))]
    by_rate += [(f"sweeps.{tag}.by_rate", sweep.get("by_rate", {})) for tag, sweep in experiment.get("sweeps", {}).items()]
    for field, factors in by_rate:
        check_factors(f"{where}{field}", factors)
    listed = [("scaled", experiment.get("scaled", [])), ("quick_shortens", experiment.get("quick_shortens", {})), *by_rate]
    for field, names in listed:
        for name in names:
            parameter = experiment["parameters"].get(name) if isinstance(name, str) else None
            if not parameter or not isinstance(parameter["value"], NUMBER):
                raise Refused(f"{where}{field}: expected fields that parameters gives numbers, found {json.dumps(name)}")
            wrong = next((run for run, fields in experiment["runs"].items() if not isinstance(fields.get(name, 0), NUMBER)), None)
            if wrong:
                raise Refused(f"{where}runs.{wrong}.{name}: expected a number, found {json.dumps(experiment['runs'][wrong][name])}")
    if "quick_skips" in experiment:
        try:
            re.compile(experiment["quick_skips"])
        except re.error as error:
            raise Refused(f"{where}quick_skips: expected a regular expression, found {error}") from error


def read(path):
    try:
        experiment = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise Refused(f"{path.name}:{error.lineno}: expected JSON, found {error.msg}") from error
    if not isinstance(experiment, dict):
        raise Refused(f"{path.name}: expected an object, found {json.dumps(experiment)[:40]}")
    where = f"{path.name}: "
    check_object(where, experiment, FIELDS, NEEDED)
    for name, parameter in experiment["parameters"].items():
        check_parameter(f"{where}parameters.{name}", parameter)
    for tag, sweep in experiment.get("sweeps", {}).items():
        check_object(f"{where}sweeps.{tag}.", sweep, SWEEP, ("fields", "rates"))
        check_factors(f"{where}sweeps.{tag}.rates", dict(enumerate(sweep["rates"])))
    for name, fields in experiment["runs"].items():
        if not isinstance(fields, dict):
            raise Refused(f"{where}runs.{name}: expected an object, found {json.dumps(fields)}")
    check_multiplied(where, experiment)
    add_sweeps(experiment)
    named = {"main": experiment["main"]}
    if "against" in experiment:
        check_object(f"{where}against.", experiment["against"], AGAINST, AGAINST)
        named["against.run"] = experiment["against"]["run"]
    for field, run in named.items():
        if run not in experiment["runs"]:
            raise Refused(f"{where}{field}: expected one of the runs, found {run}")
    return experiment


def add_sweeps(experiment):
    """A sweep is a run `tag@rate` for each of its rates of conversations. What `by_rate` lists is so many times the rate, so
    that each run lasts as long, whatever its rate."""
    for tag, sweep in experiment.get("sweeps", {}).items():
        by_rate = {**experiment.get("by_rate", {}), **sweep.get("by_rate", {})}
        for rate in sweep["rates"]:
            scaled = {name: round(times * rate) for name, times in by_rate.items()}
            experiment["runs"][f"{tag}@{rate}"] = {**sweep["fields"], "workload.rate": rate, **scaled}


def missing_trace(experiment):
    """A trace that the experiment needs and that is not there, or None. Relative paths begin at the repository's root."""
    files = [parameter["value"] for name, parameter in experiment["parameters"].items() if name == "trace.file"]
    files += [fields["trace.file"] for fields in experiment["runs"].values() if "trace.file" in fields]
    return next((file for file in files if not (ROOT / str(file)).is_file()), None)


def scenario(experiment, overrides, scale, quick):
    """The scenario's fields: the experiment's parameters, the run's own; in a quick run fewer requests. What `scaled` lists (the
    workload and the memory that it outgrows) is multiplied by the scale."""
    fields = {name: parameter["value"] for name, parameter in experiment["parameters"].items()}
    fields.update(overrides)
    if quick:
        fields.update(experiment["quick"])
        scale = min(scale, experiment.get("quick_scale", 1))
    for name in experiment.get("scaled", []):
        fields[name] = type(fields[name])(fields[name] * scale)
    if quick:
        for name, divisor in experiment.get("quick_shortens", {}).items():
            fields[name] = max(1, fields[name] // divisor)
    if "trace.file" in fields:
        fields["trace.file"] = str(ROOT / str(fields["trace.file"]))
    out = {}
    for name, value in fields.items():
        at = out
        *path, last = name.split(".")
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return out


def second_runs(experiment):
    """(name, fields) of each assumption's second run: of the main run, and of the one that it is compared with. Where they have a scale of
    their own, `none` is those two at that scale with nothing changed."""
    compared = [("second", experiment["main"])]
    if "against" in experiment:
        compared.append(("second-against", experiment["against"]["run"]))
    changes = {"none": {}} if "second_scale" in experiment else {}
    changes.update({field: {field: parameter["second"]} for field, parameter in experiment["parameters"].items() if "second" in parameter})
    for field, change in changes.items():
        for tag, run in compared:
            yield f"{tag}:{field}", {**experiment["runs"][run], **change}
