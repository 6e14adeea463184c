"""Check the data folder: its owner, whether the sampler may write there, and the free space."""

import os
import stat
from collections.abc import Iterator
from pathlib import PurePath

from gua_report.doctor.findings import COMMENT, Finding, as_root, error, ok, plural, shell, size, sudo, warning
from gua_report.doctor.user import DirectoryHangs, NoSuchUser, User, find_user, group_name, may, name_user
from gua_report.machine.units import Units
from gua_sample.partition_names import list_partitions, samples_dir
from gua_sample.rights import nearest, others_who_may_write

SAMPLER = "sampler"
FOLDER = "data folder"
SPACE = "free space"
MIB, GIB = 1024**2, 1024**3
LEAST_BYTES = 10 * MIB
FEW_BYTES = GIB  # eight cards take half of that a year
FEW_SHARE = 0.05
PLENTY_BYTES = 10 * GIB  # enough, however small a share of a large disk it is
LEAST_INODES, FEW_INODES = 10, 1000


def find_sampler(units: Units | None, data_dir: str) -> tuple[User, Finding]:
    user = None
    try:
        if units and units.user:
            user = find_user(int(units.user) if units.user.isdecimal() else units.user)
        elif units or not os.path.lexists(data_dir):
            user = find_user(os.geteuid(), os.getegid())
        if user is None or user.uid == 0:
            user = find_user(*_owner(data_dir))
        return user, ok(SAMPLER, f"gua-sample runs as {user}")
    except NoSuchUser as problem:
        text = f"gua-sample.service runs as user {problem}, who does not exist"
        finding = error(SAMPLER, text, "sudo systemd-sysusers")
    except DirectoryHangs:
        text = "the directory of users does not answer: names are missing here and in new ticks"
        finding = warning(SAMPLER, text, "getent passwd; systemctl status sssd nscd nslcd")
    return name_user(*_owner(data_dir)), finding


def check_folder(data_dir: str, user: User, units: Units | None, start: str) -> Finding:
    if trouble := _check_link(units):
        return trouble
    try:
        found = os.stat(os.path.join(data_dir, ""))  # the slash at the end makes it fail on a file
    except FileNotFoundError:
        return _check_missing(data_dir, user, units, start)
    except NotADirectoryError:
        return error(FOLDER, f"{nearest(data_dir)} is no folder", "gua doctor --data-dir DIR")
    except OSError as problem:
        return _hidden(data_dir, problem)
    if os.statvfs(data_dir).f_flag & os.ST_RDONLY:
        place = PurePath(os.path.realpath(data_dir))
        mounted = next(str(one) for one in (place, *place.parents) if os.path.ismount(one))
        remount = sudo("mount", "-o", "remount,rw", mounted)
        return error(FOLDER, f"{data_dir} is on a file system mounted read-only", remount)
    if found.st_mode & stat.S_ISVTX and found.st_mode & stat.S_IWOTH:  # /tmp, say: who owns it must not change
        return error(FOLDER, f"{data_dir} is for everybody: use one for gua alone", "gua doctor --data-dir DIR")
    if found.st_uid != user.uid:
        owner = name_user(found.st_uid, found.st_gid)
        return error(FOLDER, f"{data_dir} belongs to {owner}, but gua-sample runs as {user}", _chown(user, data_dir))
    try:
        trouble = _check_samples(data_dir, user)
    except NotADirectoryError:
        samples = samples_dir(data_dir)
        return error(FOLDER, f"{samples} is no folder", sudo("mv", "-T", samples, samples + ".old"))
    except OSError as problem:
        return _hidden(data_dir, problem)
    mode = f"owner {user.spelled}, mode {found.st_mode & 0o7777:04o}"
    return trouble or ok(FOLDER, f"{data_dir}, {mode}: {_readers(found)} may read it")


def check_writers(data_dir: str) -> Iterator[Finding]:
    if opening := others_who_may_write(data_dir):
        remedy = f"sudo {opening.remedy}" if opening.remedy else "gua doctor --data-dir DIR"
        yield warning(FOLDER, opening.text if opening.remedy else str(opening), remedy)


def check_space(data_dir: str) -> Finding:
    place = nearest(data_dir)
    file_system = os.statvfs(place)
    free = file_system.f_bavail * file_system.f_frsize
    total = file_system.f_blocks * file_system.f_frsize
    # File systems without a fixed number of inodes report none.
    inodes = file_system.f_favail if file_system.f_files else FEW_INODES
    text, left = f"{size(free)} of {size(total)}", f"{plural(inodes, 'inode')} left"
    if free < LEAST_BYTES:
        return error(SPACE, f"{text}: too little to go on", shell("df", "-h", place))
    if inodes < LEAST_INODES:
        return error(SPACE, f"{left}: no new file can be made", shell("df", "-i", place))
    if inodes < FEW_INODES:
        return warning(SPACE, left, shell("df", "-i", place))
    if free < FEW_BYTES or (free < FEW_SHARE * total and free < PLENTY_BYTES):
        return warning(SPACE, text, shell("df", "-h", place))
    return ok(SPACE, text)


def _check_missing(data_dir: str, user: User, units: Units | None, start: str) -> Finding:
    if os.path.islink(data_dir):
        return error(FOLDER, f"{data_dir} is a link to a folder that does not exist", shell("ls", "-l", data_dir))
    if units or may(user, nearest(data_dir), os.W_OK | os.X_OK):
        return warning(FOLDER, f"{data_dir} does not exist: the first run makes it", start)
    make = sudo("install", "-d", "-o", user.spelled, data_dir)
    return error(FOLDER, f"{data_dir} does not exist, and {user} can't create it", make)


def _check_link(units: Units | None) -> Finding | None:
    path = units.state_folder if units else None
    if path is None or not os.path.islink(path) or os.readlink(path).startswith("private/"):
        return None
    text = f"{path} is a symbolic link: systemd wants a folder there, and starts no run (238/STATE_DIRECTORY)"
    mount = sudo("mount", "--bind", os.path.realpath(path), path)
    remark = f'{COMMENT}and in /etc/fstab: see docs/operations.md "Moving the data"'
    return error(FOLDER, text, f"{sudo('rm', path)} && {sudo('mkdir', path)} && {mount}{remark}")


def _hidden(data_dir: str, problem: OSError) -> Finding:
    text = f"{data_dir} can't be looked into ({problem.strerror})"
    if isinstance(problem, PermissionError):  # hidden from this user, but perhaps not from the sampler
        return warning(FOLDER, text, as_root(data_dir))
    return error(FOLDER, text, shell("namei", "-l", data_dir))


def _check_samples(data_dir: str, user: User) -> Finding | None:
    samples = samples_dir(data_dir)
    try:
        paths = [samples, *(os.path.join(samples, name) for name in sorted(os.listdir(samples)))]
    except FileNotFoundError:
        return None if may(user, data_dir, os.W_OK | os.X_OK) else _closed(user, data_dir, 0o700)
    strangers = [path for path in paths if user.uid != 0 and _is_strange(path, user)]
    if strangers:
        others = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        text = f"{strangers[0]}{others} does not belong to {user}, who must write there"
        return error(FOLDER, text, _chown(user, data_dir))
    if not may(user, samples, os.W_OK | os.X_OK):
        return _closed(user, samples, 0o700)
    newest = list_partitions(samples)[-1:]
    return _closed(user, newest[0], 0o600) if newest and not may(user, newest[0], os.R_OK | os.W_OK) else None


def _is_strange(path: str, user: User) -> bool:
    try:
        return os.lstat(path).st_uid != user.uid
    except FileNotFoundError:  # a journal or a kept tick, removed meanwhile
        return False


def _owner(path: str) -> tuple[int, int]:
    found = os.stat(nearest(path))
    return found.st_uid, found.st_gid


def _chown(user: User, data_dir: str) -> str:
    return sudo("chown", "-R", f"{user.spelled}:", data_dir)


def _closed(user: User, path: str, mode: int) -> Finding:
    lacks = os.stat(path).st_mode & mode != mode
    remedy = sudo("chmod", "u+rwX", path) if lacks else shell("namei", "-l", path)
    return error(FOLDER, f"{user} can't write to {path}", remedy)


def _readers(found: os.stat_result) -> str:
    if found.st_mode & 0o005 == 0o005:
        return "everybody"
    return f"group {group_name(found.st_gid)}" if found.st_mode & 0o050 == 0o050 else "nobody else"
