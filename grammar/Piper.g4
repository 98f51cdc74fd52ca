// The grammar of Piper. Every decision is LL(1): one token tells each alternative from the others, so that the
// generated parser never predicts by simulation and parsing is linear. No embedded actions.
//
// The parser is fed by frontend/scanner.cpp, not by the lexer that ANTLR derives from the rules at the end, for what
// no context-free lexer can know:
//   * where lines end statements (it inserts ';' at line ends, and before every '}'; see frontend/parser.h);
//   * units: QUANTITY is a number together with its unit;
//   * words by their shape: KEY is a word before '=' that opens an item inside ( ) or [ ], LABEL a word with ':' that
//     opens a statement, NEGATE the 'not' before a KEY; 'fn' is FN before a name, LAMBDA before '(', else FN_TYPE; 'if'
//     is IF where a statement may begin and after 'else', else IF_VALUE; 'tag' stands only before NAME '{', 'lanes'
//     before '{', 'steps' before a string, 'table' before 'from' and a string; after '.' every word is an IDENT;
//   * a ',' before ')' or ']' is dropped.
// Operator precedence is resolved on the flat `expr` by frontend/ast_builder.cpp.
// A rule, a token or their order changed here: change the tables in frontend/syntax.h (static_asserts compare them).
grammar Piper;

tokens { KEY, LABEL, NEGATE, QUANTITY, IF_VALUE, LAMBDA, FN_TYPE }

// ---------------------------------------------------------------- files and declarations

file : (';' | declaration)* EOF ;

loneExpr : ';'* expr ';'* EOF ;

declaration
  : importDecl ';'
  | letStmt ';'
  | fnDecl
  | moduleDecl
  | modelDecl ';'
  | topologyDecl
  | strategyDecl
  | runDecl
  | testDecl
  ;

importDecl : 'import' (word ('.' IDENT)* | STRING) ('as' word)? ;

modelDecl : 'model' word '=' expr ;

fnDecl : 'fn' word params ('->' type)? requirement* block ;

params : '(' (param (',' param)*)? ')' ;

param : word (':' type ('=' expr)?)? | KEY '=' expr ;

requirement : 'requires' condition (',' condition)* ;

condition : expr ('hint' expr)? ;

moduleDecl : 'module' word params? requirement* '{' (';' | member)* '}' ;

member
  : paramDecl ';'
  | forwardDecl
  | letStmt ';'
  | fnDecl
  | memberName '=' expr ';'
  ;

paramDecl : 'param' word ':' type ('=' expr)? ;

forwardDecl : 'forward' params ('->' type)? requirement* block ;

memberName : plainWord | directiveWord ;

topologyDecl : 'topology' word params? requirement* '{' (';' | topologyItem ';')* '}' ;

topologyItem
  : 'device' word properties
  | 'level' word '=' expr ('of' word)? ('joined' 'by' properties)?
  | letStmt
  | topologyProperty
  ;

topologyProperty : plainWord word? '=' expr ;

properties : '{' (';' | property ';')* '}' ;

property : word word? '=' expr ;

strategyDecl : 'strategy' word params? requirement* directiveBlock ;

runDecl : ('train' | 'eval' | 'infer') word? fields ;

fields : '{' (';' | field ';')* '}' ;

field : word ('per' word | '=' fieldValue | fieldValue | fields)? ;

fieldValue : expr ('where' expr)? fields? ;

testDecl : 'test' STRING ('for' clause (',' clause)*)? block ;

// ---------------------------------------------------------------- types

type
  : '[' typeItem (',' typeItem)* ']' IDENT?
  | FN_TYPE
  | LAMBDA '(' (type (',' type)*)? ')' ('->' type)?
  | '(' type (',' type)* ')'
  | word ('[' type ']')?
  ;

typeItem : KEY '=' expr | expr ;

// ---------------------------------------------------------------- statements of functions, steps, tests

block : '{' (';' | statement)* '}' ;

statement
  : LABEL
  | forStmt
  | ifStmt
  | fnDecl
  | lanesStmt
  | simpleStmt ';'
  ;

forStmt : 'for' clause block ;

clause : pattern 'in' expr ;

pattern : word | '(' word (',' word)* ')' ;

ifStmt : 'if' expr block ('else' elseTail)* ;

ifValue : IF_VALUE expr block ('else' elseTail)* ;

elseTail : 'if' expr block | block ;

lanesStmt : 'lanes' block ;

simpleStmt
  : letStmt
  | 'return' expr?
  | 'expect' expr
  | 'steps' STRING bracket?
  | expr (('=' | '+=' | '-=') expr)?
  ;

letStmt : ('let' | 'var') pattern (':' type)? '=' expr ;

// ---------------------------------------------------------------- statements of strategies

directiveBlock : '{' (';' | directiveStatement)* '}' ;

directiveStatement
  : directiveFor
  | directiveIf
  | fnDecl
  | letStmt ';'
  | directive ';'
  | overrideDirective ';'
  | assignment ';'
  ;

directiveFor : 'for' clause directiveBlock ;

directiveIf : 'if' expr directiveBlock ('else' directiveElse)* ;

directiveElse : 'if' expr directiveBlock | directiveBlock ;

assignment : plainWord suffix* (('=' | '+=' | '-=') expr)? ;

overrideDirective : 'override' directive ;

directive
  : meshDirective
  | cutDirective
  | splitDirective
  | placeDirective
  | shardDirective
  | zeroDirective
  | orderDirective
  | edgeDirective
  | limitDirective
  | streamDirective
  | recomputeDirective
  | offloadDirective
  | freezeDirective
  | optimizerDirective
  | runDirective
  | numericsDirective
  | costDirective
  | slowdownDirective
  | assertDirective
  | useDirective
  ;

meshDirective : 'mesh' word? '(' meshAxis (',' meshAxis)* ')' ('on' term)? ('folds' word)? ;

meshAxis : KEY '=' expr ('within' word)? ;

cutDirective : 'cut' word (',' word)* 'into' expr 'as' word ;

splitDirective : 'split' bracket? word ('by' word)? 'into' splitPart (',' splitPart)* ;

splitPart : expr ('into' expr)? 'as' word 'uneven'? ;

placeDirective : 'place' expr 'on' expr ;

shardDirective : 'shard' word ('|' word)* 'over' expr shardClause* ;

shardClause
  : 'where' expr
  | 'as' word
  | 'via' word
  | 'capacity' term
  | 'with' word 'by' term
  ;

zeroDirective : 'zero' zeroLevel selector? zeroClause* fields? ;

zeroLevel : INT | word | '(' expr ')' ;

zeroClause : 'per' word | 'as' word | 'where' expr ;

selector : bracket suffix* ;

orderDirective : 'order' 'on' expr block ;

edgeDirective : 'edge' expr '->' expr ('distance' expr)? ;

limitDirective : 'limit' expr 'live' expr ('per' word)? ;

streamDirective : 'stream' expr 'on' word ;

recomputeDirective : 'recompute' expr ('keep' expr)? ;

offloadDirective : 'offload' expr 'to' word fields? ;

freezeDirective : 'freeze' expr ;

optimizerDirective : 'optimizer' word ;

runDirective : 'run' word ('hint' expr)? ('where' expr)? ;

numericsDirective : 'numerics' word ;

costDirective : 'cost' expr '=' expr ;

slowdownDirective : 'slowdown' word 'with' word '=' expr ;

assertDirective : 'assert' expr ;

useDirective : 'use' term ;

// ---------------------------------------------------------------- expressions

expr
  : term
    ( ( 'or' | 'and' | '==' | '!=' | '<' | '<=' | '>' | '>=' | 'divides' | 'learns' | 'by' | '..'
      | '+' | '-' | '*' | '/' | '%' | '@' )
      term )*
  ;

term : ('-' | 'not')* atom suffix* ;

suffix
  : '(' (argument (',' argument)*)? ')'
  | '[' item (',' item)* ']'
  | '.' (IDENT | '*')
  | '?'
  ;

argument : KEY '=' expr | expr ;

atom
  : word
  | (INT | FLOAT | QUANTITY | STRING | 'true' | 'false')
  | '(' expr (',' expr)* ')'
  | bracket
  | ifValue
  | FN_TYPE
  | lambda
  | 'tag' word block
  | 'table' 'from' STRING
  ;

lambda : LAMBDA params ('->' type)? block ;

bracket : '[' (item ('for' clause (',' clause)* (IF_VALUE expr)? | (',' item)*))? ']' ;

item : '*' | NEGATE? KEY '=' expr | expr ;

// ---------------------------------------------------------------- words

word : plainWord | directiveWord | 'param' | 'forward' | 'device' | 'level' ;

plainWord
  : IDENT
  | 'import' | 'module' | 'model' | 'topology' | 'strategy' | 'train' | 'eval' | 'infer' | 'test'
  | 'as' | 'into' | 'on' | 'over' | 'where' | 'via' | 'with' | 'within' | 'folds' | 'joined' | 'by' | 'of' | 'live'
  | 'to' | 'keep' | 'hint' | 'capacity' | 'uneven' | 'distance' | 'requires' | 'divides' | 'learns' | 'from'
  ;

directiveWord
  : 'mesh' | 'cut' | 'split' | 'place' | 'shard' | 'zero' | 'order' | 'edge' | 'limit' | 'stream' | 'recompute'
  | 'offload' | 'freeze' | 'optimizer' | 'run' | 'numerics' | 'cost' | 'slowdown' | 'assert' | 'use' | 'override'
  ;

// ---------------------------------------------------------------- vocabulary

LET : 'let' ; VAR : 'var' ; FN : 'fn' ; RETURN : 'return' ; FOR : 'for' ; IN : 'in' ; IF : 'if' ; ELSE : 'else' ;
TRUE : 'true' ; FALSE : 'false' ; AND : 'and' ; OR : 'or' ; NOT : 'not' ; EXPECT : 'expect' ; PER : 'per' ;

TAG : 'tag' ; LANES : 'lanes' ; STEPS : 'steps' ; TABLE : 'table' ;

IMPORT : 'import' ; MODULE : 'module' ; MODEL : 'model' ; TOPOLOGY : 'topology' ; STRATEGY : 'strategy' ;
TRAIN : 'train' ; EVAL : 'eval' ; INFER : 'infer' ; TEST : 'test' ;
PARAM : 'param' ; FORWARD : 'forward' ; DEVICE : 'device' ; LEVEL : 'level' ;

MESH : 'mesh' ; CUT : 'cut' ; SPLIT : 'split' ; PLACE : 'place' ; SHARD : 'shard' ; ZERO : 'zero' ; ORDER : 'order' ;
EDGE : 'edge' ; LIMIT : 'limit' ; STREAM : 'stream' ; RECOMPUTE : 'recompute' ; OFFLOAD : 'offload' ;
FREEZE : 'freeze' ; OPTIMIZER : 'optimizer' ; RUN : 'run' ; NUMERICS : 'numerics' ; COST : 'cost' ;
SLOWDOWN : 'slowdown' ; ASSERT : 'assert' ; USE : 'use' ; OVERRIDE : 'override' ;

AS : 'as' ; INTO : 'into' ; ON : 'on' ; OVER : 'over' ; WHERE : 'where' ; VIA : 'via' ; WITH : 'with' ;
WITHIN : 'within' ; FOLDS : 'folds' ; JOINED : 'joined' ; BY : 'by' ; OF : 'of' ; LIVE : 'live' ; TO : 'to' ;
KEEP : 'keep' ; HINT : 'hint' ; CAPACITY : 'capacity' ; UNEVEN : 'uneven' ; DISTANCE : 'distance' ;
REQUIRES : 'requires' ; DIVIDES : 'divides' ; LEARNS : 'learns' ; FROM : 'from' ;

LPAREN : '(' ; RPAREN : ')' ; LBRACKET : '[' ; RBRACKET : ']' ; LBRACE : '{' ; RBRACE : '}' ;
COMMA : ',' ; SEMICOLON : ';' ; COLON : ':' ; DOT : '.' ; RANGE : '..' ; QUESTION : '?' ; ARROW : '->' ; BAR : '|' ;
ASSIGN : '=' ; ADD_ASSIGN : '+=' ; SUB_ASSIGN : '-=' ;
EQUAL : '==' ; NOT_EQUAL : '!=' ; LESS : '<' ; LESS_EQUAL : '<=' ; GREATER : '>' ; GREATER_EQUAL : '>=' ;
PLUS : '+' ; MINUS : '-' ; STAR : '*' ; SLASH : '/' ; PERCENT : '%' ; AT : '@' ;

FLOAT : [0-9] [0-9_]* ('.' [0-9]+)? ([eE] [+-]? [0-9]+)? ;
INT : [0-9] [0-9_]* ;
STRING : '"' ( ~["\\\r\n] | '\\' . )* '"' ;
IDENT : [A-Za-z_] [A-Za-z_0-9]* ;

LINE_COMMENT : '//' ~[\r\n]* -> channel(HIDDEN) ;
BLOCK_COMMENT : '/*' .*? '*/' -> channel(HIDDEN) ;
SPACE : [ \t\r\n]+ -> channel(HIDDEN) ;
