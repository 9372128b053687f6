from tabmt.cli.main import main

main()
