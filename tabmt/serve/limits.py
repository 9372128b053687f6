"""Every limit of the server in one place. docs/page.md names the main ones.

They protect the person at this machine from a mistake (a file dropped twice, a program in a loop)
and the memory of the machine, not from somebody who has the token.
"""

HOST = "127.0.0.1"  # the only address that is ever bound
PORT = 8640  # tried first, and then those after it

MOST_UPLOAD = 512_000_000  # bytes of a table
MOST_BODY = 2**23  # bytes of any other request
MOST_TABLES = 100
MOST_JOBS = 500  # that the work folder keeps
MOST_NAME = 200  # characters of a file name
MOST_COLUMNS = 2_000  # of an uploaded table

MOST_ROWS = 100_000_000  # of one request
ROWS_AT_ONCE = 20_000  # up to which rows are drawn in the server itself; above, in a process
SMALL_ROWS = 500  # up to which requests have a thread that larger ones do not use
MOST_PROMPTS = 10_000  # rows within one request, to be completed, filled or scored
MOST_DISTRIBUTION_ROWS = 5_000
MOST_CONDITIONS = 500
MOST_VALUES = 1_000  # of one condition

MOST_STREAMS = 4  # large requests that are answered at the same time
MOST_WAITING = 2_000  # small requests that wait for a thread
MOST_CONNECTIONS = 1_000
MOST_LOADED = 4  # models in memory
REQUEST_SECONDS = 120.0
STREAM_SECONDS = 6 * 3600.0

MOST_RUNNING = 1  # jobs that run at the same time: training takes every core it is given
MOST_QUEUED = 20  # jobs that wait
MOST_JOB_MINUTES = 24 * 60.0
STOP_SECONDS = 20.0  # that a job has to save its state before its process is ended

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 100
