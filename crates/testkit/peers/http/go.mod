module shunt/http

go 1.19
