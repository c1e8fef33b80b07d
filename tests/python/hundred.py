"""Posts a hundred messages to a session, each when the one before is done. Usage: hundred.py SESSION"""

import sys
import time

from ctx_client import *

api = Api()
for n in range(100):
    while api.call("POST", f"/sessions/{sys.argv[1]}/messages", {"text": f"m{n}"})[0] == 409:
        time.sleep(0.002)
while api.ok("GET", f"/sessions/{sys.argv[1]}")["state"] != "idle":
    time.sleep(0.002)
