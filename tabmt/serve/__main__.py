import sys

from tabmt.serve.worker import main

sys.exit(main(sys.argv[1:]))
